"""Facts become a status that stands still while nothing happens."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api import durations
from nightjar_api.status import NightjarServiceStatus
from nightjar_operator.conditions import Condition, merged, transitions
from nightjar_operator.diagnosis import conditions
from nightjar_operator.reports import MalformedReportError, Planning, Silence, planning
from nightjar_operator.status import Address, dump, read, status
from nightjar_operator.summary import _switch_cost, steadied, summary
from nightjar_operator.telling import event, is_worth_telling

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
ADDRESS = Address("nightjar.dev/service=chat", "http://chat.default.svc/v1")


def made(facts, before=None, moment=NOW, *, fresh=True):
    return status(facts, conditions(facts), ADDRESS, before or NightjarServiceStatus(), moment, fresh=fresh)


def test_the_same_facts_give_the_same_status_at_any_time(make_facts):
    facts = make_facts()
    first = made(facts)
    assert made(facts, before=first, moment=LATER) == first


def test_a_status_read_back_is_the_one_written(make_facts):
    first = made(make_facts())
    assert read(dump(first)) == first


def test_a_status_that_another_version_wrote_is_written_anew():
    assert read({"conditions": "none"}) == NightjarServiceStatus()


def test_a_transition_time_moves_only_where_the_answer_does(make_facts):
    first = made(make_facts())
    later = made(make_facts(pods=(), reports={}, deployment=None), before=first, moment=LATER)
    times = {one.type: one.last_transition_time for one in later.conditions}
    assert times["Accepted"] == "2026-01-02T03:04:05Z"
    assert times["RolledOut"] == "2026-01-02T04:04:05Z"


def test_figures_wait_until_they_may_move(make_facts, make_report, make_pod):
    pod = make_pod()
    first = made(make_facts(pods=(pod,), reports={pod.uid: make_report()}))
    busier = make_facts(pods=(pod,), reports={pod.uid: make_report(gamma=0, tokens_per_second=900.0)})
    assert made(busier, before=first, fresh=False) == first
    after = made(busier, before=first)
    assert (after.speculation.tokens_per_second, after.pods[0].gamma) == (900, 0)


def test_what_a_pod_obeys_never_waits(make_facts, make_report, make_pod):
    pod = make_pod()
    first = made(make_facts(pods=(pod,), reports={pod.uid: make_report(revision="old")}))
    after = made(make_facts(pods=(pod,), reports={pod.uid: make_report()}), before=first, fresh=False)
    assert (first.pods[0].settings_revision, after.pods[0].settings_revision) == ("old", "new")


def test_pods_are_summed_up(make_report):
    found = summary([make_report(), make_report(gamma=1, residency="OffDevice", acceptance=(0.6,))])
    assert found.gamma == "1-3"
    assert found.drafts_on_gpu == "1/2"
    assert found.tokens_per_second == 200
    assert found.acceptance_percent == [70, 60]
    assert found.switch_cost == "12ms"
    assert [(one.min_batch, one.max_batch, one.gamma) for one in found.buckets] == [(1, 1, "3"), (2, 8, "0")]


def test_without_reports_there_is_no_summary():
    assert summary([]) is None


@given(st.floats(0.93, 1.07))
def test_noise_moves_nothing(wobble):
    def report(factor):
        return Planning("r", None, None, 3, (), (0.5 * factor,), 0.02 * factor, "OnDevice", 500.0 * factor)

    first = summary([report(1.0)])
    assert steadied(first, summary([report(wobble)])) == first


@given(st.floats(1e-6, 1e5))
def test_a_switch_cost_is_a_duration_close_to_what_was_measured(seconds):
    written = durations.seconds(_switch_cost([seconds]))
    assert abs(written - seconds) <= max(0.06 * seconds, 6e-7)


def test_a_changed_condition_is_told_and_a_first_one_only_if_it_is_bad():
    ready, refused = Condition("Ready", "True", "Serving", "…"), Condition("Accepted", "False", "InvalidSpec", "…")
    first = transitions([], [ready, refused])
    assert [is_worth_telling(one) for one in first] == [False, True]
    before = merged([], [ready, refused], 1, NOW)
    assert transitions(before, [ready, refused]) == []
    lost = transitions(before, [Condition("Ready", "False", "NoPod", "…"), refused])
    assert [(one.condition.type, one.before) for one in lost] == [("Ready", "True")]
    metadata = {"name": "chat", "namespace": "default", "uid": "u", "resourceVersion": "1"}
    service = {"apiVersion": "nightjar.dev/v1alpha1", "kind": "NightjarService", "metadata": metadata}
    told = event(service, lost[0], "operator-1", "00ff", NOW)
    assert (told["type"], told["reason"], told["metadata"]["name"]) == ("Warning", "NoPod", "chat.00ff")


def test_a_long_message_keeps_its_beginning_and_its_end():
    long = Condition("Ready", "False", "Error", "begin " + "x" * 5000 + " end")
    message = merged([], [long], 1, NOW)[0].message
    assert message.startswith("begin ")
    assert message.endswith(" end")
    assert len(message) <= 1024


def test_the_sidecars_own_status_is_understood():
    from nightjar_benchmarks.operator_figures.fake_sidecars import status as answer

    found = planning(answer("r1"))
    assert (found.revision, found.gamma, found.residency, found.unready) == ("r1", 3, "OnDevice", None)


@pytest.mark.parametrize("answer", [None, [], {}, {"settings": {}}, "ok"])
def test_an_answer_that_is_not_a_status_is_refused(answer):
    with pytest.raises(MalformedReportError, match="/status is required"):
        planning(answer)


def test_a_silent_sidecar_leaves_its_pod_in_the_status(make_facts, make_pod):
    pod = make_pod()
    found = made(make_facts(pods=(pod,), reports={pod.uid: Silence("refused")}))
    assert [(one.name, one.settings_revision) for one in found.pods] == [(pod.name, None)]
    assert found.speculation is None
