"""Small decisions: when to touch a pod, whom to ask, who leads, what is unwanted."""

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nightjar_api.errors import ConfigurationError
from nightjar_operator import lease, refresh, settings
from nightjar_operator.apply import unwanted
from nightjar_operator.kinds import CONFIG_MAP, DEPLOYMENT
from nightjar_operator.manifests import Images, Owner
from nightjar_operator.pods import pod
from nightjar_operator.reports import Silence
from nightjar_operator.settings import Settings, Webhook
from nightjar_operator.sidecars import Rounds, Target
from nightjar_operator.store import Child

NOW = datetime(2026, 1, 2, tzinfo=UTC)
IMAGES = Images("engine:1", "sidecar:1")


def test_a_pod_is_touched_until_it_obeys_then_left(make_pod):
    values, waited = [], []
    current = make_pod()
    for seconds in range(200):
        value = refresh.next_touch(current, "new", seconds - (waited[-1] if waited else -1e9))
        if value is not None:
            values.append(value)
            waited.append(seconds)
            current = make_pod(refresh=value)
    assert values == ["new.1", "new.2", "new.3", "new.4", "new.5"]
    assert waited == [0, 2, 6, 14, 30]


def test_touches_for_older_settings_do_not_count(make_pod):
    assert refresh.next_touch(make_pod(refresh="old.5"), "new", 0) == "new.1"


def test_only_a_sidecar_that_obeys_something_else_is_behind(make_pod, make_report):
    current = make_pod()
    assert refresh.is_behind(current, "new", make_report(revision="old"))
    assert not refresh.is_behind(current, "new", make_report(revision="new"))
    assert not refresh.is_behind(current, "new", make_report(revision="old", refused="gammaMax: …"))
    assert not refresh.is_behind(current, "new", Silence("starts"))
    assert not refresh.is_behind(current, "new", None)
    assert not refresh.is_behind(make_pod(leaving=True), "new", make_report(revision="old"))


def target(uid, *, impatient=False):
    return Target(("default", "chat"), uid, f"http://{uid}/status", impatient)


def test_a_new_pod_is_asked_at_once_and_never_twice_at_a_time():
    rounds = Rounds(10, random.Random(0))
    assert rounds.due([target("a")], 0) == [target("a")]
    assert rounds.due([target("a")], 100) == []


def test_an_answer_is_good_for_about_a_period():
    rounds = Rounds(10, random.Random(0))
    rounds.due([target("a")], 0)
    rounds.asked(target("a"), 1)
    assert rounds.due([target("a")], 1 + 7.4) == []
    assert rounds.due([target("a")], 1 + 12.5) == [target("a")]


def test_who_is_about_to_take_new_settings_is_asked_every_second():
    rounds = Rounds(10, random.Random(0))
    rounds.due([target("a")], 0)
    rounds.asked(target("a"), 0)
    waiting = target("a", impatient=True)
    assert rounds.due([waiting], 0.9) == []
    assert rounds.due([waiting], 1.0) == [waiting]


def test_pods_found_together_drift_apart():
    rounds = Rounds(10, random.Random(0))
    targets = [target(str(number)) for number in range(100)]
    for one in rounds.due(targets, 0):
        rounds.asked(one, 0)
    assert 20 < len(rounds.due(targets, 10)) < 80


def held(holder, renewed="2026-01-01T00:00:00.000000Z", transitions=3):
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseTransitions": transitions, "acquireTime": "then"}
    return {"metadata": {"resourceVersion": "1"}, "spec": spec}


def test_a_lease_is_taken_only_when_free_ours_or_not_renewed_for_its_duration():
    seen = lease.sighting(held("other"), None, now=100)
    assert not lease.may_take(seen, "me", now=100)
    assert lease.may_take(lease.sighting(held(""), None, now=100), "me", now=100)
    assert lease.may_take(lease.sighting(held("me"), None, now=100), "me", now=100)
    again = lease.sighting(held("other"), seen, now=114)
    assert not lease.may_take(again, "me", now=114)
    assert lease.may_take(again, "me", now=115)


def test_a_renewal_begins_the_wait_anew():
    seen = lease.sighting(held("other"), None, now=100)
    renewed = lease.sighting(held("other", renewed="2026-01-01T00:00:05.000000Z"), seen, now=105)
    assert not lease.may_take(renewed, "me", now=119)


def test_taking_over_counts_and_renewing_does_not():
    taken = lease.taken(held("other"), "me", NOW)["spec"]
    kept = lease.taken(held("me"), "me", NOW)["spec"]
    assert (taken["holderIdentity"], taken["leaseTransitions"]) == ("me", 4)
    assert taken["acquireTime"] == "2026-01-02T00:00:00.000000Z"
    assert (kept["leaseTransitions"], kept["acquireTime"]) == (3, "then")
    assert kept["renewTime"] == "2026-01-02T00:00:00.000000Z"


def test_only_children_of_this_very_service_are_unwanted():
    owner = Owner("default", "chat", "uid-1")

    def child(name, controller="uid-1", **changes):
        values = {"kind": CONFIG_MAP, "name": name, "uid": name, "controller": controller, "leaving": False}
        return Child(**values | {"fingerprint": "", "state": None} | changes)

    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}
    children = [
        child("kept"),
        child("left over"),
        child("of another", "uid-2"),
        child("nobody's", None),
        child("leaving", leaving=True),
        child("kept", kind=DEPLOYMENT),
    ]
    assert [(one.kind, one.name) for one in unwanted(owner, [wanted], children)] == [
        (CONFIG_MAP, "left over"),
        (DEPLOYMENT, "kept"),
    ]


def test_a_pod_is_read_from_the_api():
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "CUDA out of memory\n"}}
    found = pod(
        {
            "metadata": {"name": "chat-1", "uid": "u", "annotations": {"nightjar.dev/settings-refresh": "new.1"}},
            "spec": {"initContainers": [{"ports": [{"name": "status", "containerPort": 8001}]}]},
            "status": {
                "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": "False"}],
                "containerStatuses": [
                    {"name": "engine", "state": waiting, "lastState": ended},
                    {"name": "fine", "state": {"running": {}}, "lastState": ended},
                ],
            },
        }
    )
    assert (found.address, found.status_port, found.ready, found.refresh) == ("10.0.0.1", 8001, False, "new.1")
    assert [(one.container, one.reason, one.message) for one in found.troubles] == [
        ("engine", "Error", "CUDA out of memory")
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": Images("", "s:1")}, "--engine-image: the name of an image is required, found ''"),
        ({"namespaces": ("Team A",)}, "--namespace: the name of a namespace is required, found 'Team A'"),
        ({"workers": 0}, "--workers: at least 1 is required, found 0"),
        ({"resync_seconds": 0}, "--resync-seconds: at least 1 is required, found 0"),
        ({"poll_seconds": 0.5}, "--poll-seconds: at least 1 is required, found 0.5"),
    ],
)
def test_wrong_options_are_refused_by_name(changes, message):
    with pytest.raises(ConfigurationError) as caught:
        Settings(**{"images": IMAGES} | changes)
    assert str(caught.value) == message


@pytest.mark.parametrize("text", ["leader", "a/b/c", "/leader", "ns/", "NS/leader"])
def test_a_lease_is_named_by_namespace_and_name(text):
    with pytest.raises(ConfigurationError, match="--lease: NAMESPACE/NAME is required"):
        settings.lease(text)
    assert settings.lease("nightjar/leader") == ("nightjar", "leader")


def test_a_webhook_needs_both_files_and_both_must_be_there(tmp_path):
    with pytest.raises(ConfigurationError, match="--webhook-key: both"):
        settings.webhook(tmp_path / "tls.crt", None, 9443, None)
    with pytest.raises(ConfigurationError, match="--webhook-cert: a PEM file is required"):
        Webhook(9443, Path("/nowhere/tls.crt"), Path("/nowhere/tls.key"))
    assert settings.webhook(None, None, 9443, None) is None


def test_the_defaults_are_a_promise():
    made = Settings(IMAGES)
    assert (made.port, made.workers, made.resync_seconds, made.poll_seconds) == (8080, 2, 300.0, 10.0)
    assert (made.namespaces, made.lease, made.webhook, made.kubeconfig) == ((), None, None, None)
