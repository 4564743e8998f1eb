"""The chart from install to uninstall and one service from its first pod to its last, on a real node.

A story: each test begins where the last ended. It waits for what stays true once it is, never for what may have
passed before anybody looked, so that machines may be slow or fast.
"""

import math
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from nightjar_benchmarks.load.trace import Phase, requests_of
from nightjar_benchmarks.operator_figures.real_pods import tuning
from nightjar_benchmarks.pairs.reference import expected_continuation, random_prompt
from nightjar_benchmarks.real_cluster import objects
from nightjar_benchmarks.real_cluster.clients import ask, streamed, under_load
from nightjar_benchmarks.real_cluster.release import NAME as RELEASE
from nightjar_benchmarks.real_cluster.service import Service, eventually
from nightjar_operator.manifests.containers import PRE_STOP_SECONDS

# Two engines that load at the same time on two cores, which others may be using.
LOADING_SECONDS = 400
# Clients who never think would take both cores, and what loads beside them would take minutes.
PAUSE_SECONDS = 0.5
# Requests that each engine runs at once; more of them wait in it.
SEQUENCES = 4
# Of one answer: nearly all that the model's length allows.
LONG = 1900
# Draining begins when pods are told to go. The work that they have then must outlast preStop, or vLLM would be idle
# when it is told to stop; also when one engine alone was given what its speed is measured by, which makes both look
# half as fast as they are.
OUTLAST_SECONDS = 4 * PRE_STOP_SECONDS
# Also of its Lease.
OPERATOR = f"{RELEASE}-operator"
DEFINITION = "nightjarservices.nightjar.dev"
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]


def until(check, what, seconds=60):
    return eventually(check, what, seconds)


def serving(service, count):
    return len(service.ready_pods()) == count == len(service.pods())


def restarts(service, name):
    return {container.pod: container.restarts for container in service.containers() if container.name == name}


def is_right(url, pair, seed):
    """Whether an answer through the Service is what the target says."""
    prompt = random_prompt(pair, 0, pair.shape.context_tokens, seed)
    return ask(url, "chat", prompt, 40) == expected_continuation(pair, prompt, 40)


def asked(service, pair):
    return under_load(service.url(), service.name, pair, pause=PAUSE_SECONDS)


def uids(pods):
    return {pod["metadata"]["uid"] for pod in pods}


def plans(service, count):
    """Whether so many sidecars steer their engine."""
    try:
        return [one["ready"] for one in service.sidecars()] == [True] * count
    except httpx.HTTPError:
        return False


# Images may have to be built and loaded before.
@pytest.mark.timeout(2400)
def test_helm_installs_operators_that_pass_helm_test(release):
    assert len(release.pods()) == 2
    assert "Phase:          Succeeded" in release.test()


def test_what_kubectl_applies_serves(chat, pair):
    chat.apply(drainTimeout="5m")
    until(lambda: chat.holds("Ready"), "Ready", LOADING_SECONDS)
    until(chat.is_reached, "a server behind the Service")
    assert is_right(chat.url(), pair, 1)
    until(lambda: chat.holds("RolledOut"), "RolledOut")


def test_the_planner_is_in_control(chat, pair):
    with asked(chat, pair) as outcome:
        until(lambda: chat.holds("Adaptive") and chat.holds("SettingsSynced"), "Adaptive and SettingsSynced", 120)
        until(lambda: chat.found()["status"]["speculation"].get("tokensPerSecond"), "tokens per second in status", 120)
        until(lambda: outcome.right, "a right answer")
    assert outcome.wrong == []


def test_settings_are_obeyed_within_ten_seconds_and_restart_nothing(chat, pair):
    with asked(chat, pair) as outcome:
        figures = tuning(chat)
    print(figures)
    assert figures["tuning_restarts"].value == 0
    assert figures["tuning_latency_s"].value <= 10, figures["tuning_latency_s"].raw
    assert outcome.wrong == []
    until(lambda: chat.holds("SettingsSynced"), "SettingsSynced")


def test_it_is_scaled_to_two(chat):
    chat.kubectl("scale", "njs/chat", "--replicas=2")
    until(lambda: serving(chat, 2) and chat.holds("RolledOut"), "two pods that serve", LOADING_SECONDS)
    until(lambda: chat.found()["status"]["readyReplicas"] == 2, "both in the service's status")


def test_a_killed_sidecar_comes_back_and_no_request_fails(cluster, chat, pair):
    sidecar = next(container for container in chat.containers() if container.name == "sidecar")
    engines = restarts(chat, "engine")
    with asked(chat, pair) as outcome:
        cluster.kill(sidecar.id)
        until(lambda: restarts(chat, "sidecar")[sidecar.pod] > sidecar.restarts, "a sidecar that is restarted")
        until(lambda: plans(chat, 2), "a sidecar that plans again")
        until(lambda: serving(chat, 2), "its pod to be in service again")
    assert outcome.wrong == []
    assert restarts(chat, "engine") == engines


def test_an_upgrade_rolls_operators_and_no_engine_and_so_does_its_rollback(release, chat, pair):
    engines = {container.id for container in chat.containers()}
    limit = memory_limit(release)
    with asked(chat, pair) as outcome:
        first = uids(release.pods())
        release.upgrade({"resources": {"limits": {"memory": "640Mi"}}})
        until(lambda: memory_limit(release) == {"640Mi"}, "operators with the new value only")
        second = uids(release.pods())
        chat.change(planner={"policy": "nightjar", "switchCost": "60ms"})
        until(lambda: chat.holds("SettingsSynced"), "the new operators to bring settings", 120)
        release.rollback()
        until(lambda: memory_limit(release) == limit, "operators with the value of before only")
        third = uids(release.pods())
        until(lambda: outcome.right, "a right answer")
    assert outcome.wrong == []
    assert limit != {"640Mi"}
    assert [len(pods) for pods in (first, second, third)] == [2, 2, 2]
    assert len(first | second | third) == 6
    assert {one["switchCost"]["mode"] for one in chat.sidecars()} == {"60ms"}
    assert {container.id for container in chat.containers()} == engines


def memory_limit(release):
    """Of operators that run."""
    containers = [pod["spec"]["containers"][0] for pod in release.pods()]
    return {container["resources"]["limits"]["memory"] for container in containers}


def test_a_new_engine_argument_is_rolled_out_without_a_failed_request(chat, pair):
    before, argument = uids(chat.pods()), f"--max-num-seqs={SEQUENCES}"
    with asked(chat, pair) as outcome:
        chat.change(engine={"args": [*objects.ENGINE_ARGS, argument]})
        until(lambda: chat.holds("RolledOut") and serving(chat, 2), "a finished rollout", 2 * LOADING_SECONDS)
        until(lambda: outcome.right, "a right answer")
    assert outcome.wrong == []
    assert before.isdisjoint(uids(chat.pods()))
    assert all(argument in pod["spec"]["containers"][0]["command"] for pod in chat.pods())


def test_a_killed_engine_comes_back_while_the_other_serves(cluster, chat, pair):
    engine = next(container for container in chat.containers() if container.name == "engine")
    sidecars = restarts(chat, "sidecar")
    ready = ready_since(chat, engine.pod)
    cluster.kill(engine.id)
    until(lambda: restarts(chat, "engine")[engine.pod] > engine.restarts, "an engine that is restarted")
    until(lambda: ready_since(chat, engine.pod) != ready, "the pod to be out of service, or back again")
    until(chat.is_reached, "none to be sent to the engine that loads")
    with asked(chat, pair) as outcome:
        until(lambda: serving(chat, 2), "both to serve", LOADING_SECONDS)
        until(lambda: plans(chat, 2), "both sidecars to plan")
        until(lambda: outcome.right, "a right answer")
    assert outcome.wrong == []
    assert restarts(chat, "sidecar") == sidecars


def ready_since(service, name):
    """When the pod's condition Ready last changed."""
    (pod,) = [pod for pod in service.pods() if pod["metadata"]["name"] == name]
    (condition,) = [one for one in pod["status"]["conditions"] if one["type"] == "Ready"]
    return condition["lastTransitionTime"]


def test_a_killed_operator_comes_back_and_its_work_goes_on(cluster, release, chat):
    running = {container.id for container in chat.containers()}
    pod, killed = until(lambda: leading(release), "an operator that works")
    cluster.kill(killed)
    chat.change(planner={"policy": "nightjar", "switchCost": "70ms"})
    until(lambda: operators(release).get(pod, killed) != killed, "an operator that is restarted")
    until(lambda: chat.holds("SettingsSynced"), "SettingsSynced", 120)
    assert {one["switchCost"]["mode"] for one in chat.sidecars()} == {"70ms"}
    assert {container.id for container in chat.containers()} == running


def leading(release):
    """Pod and container of the operator that holds the Lease."""
    lease = release.cluster.json("--namespace", objects.NAMESPACE, "get", "lease", OPERATOR)
    holder = lease["spec"].get("holderIdentity")
    return next((one for one in operators(release).items() if one[0] == holder), None)


def operators(release):
    """IDs of the operators' containers that run, by pod."""
    return {
        pod["metadata"]["name"]: one["containerID"].rpartition("//")[2]
        for pod in release.pods()
        for one in pod["status"].get("containerStatuses", [])
        if "running" in one["state"]
    }


def test_a_drained_node_lets_running_requests_finish(cluster, release, chat, pair):
    # Of two one would stay: their budget keeps the last, and there is no other node.
    release.upgrade({"replicas": 1})
    before = uids(chat.pods())
    with streamed(chat.url(), "chat", long_requests(pair, "gauge", 2 * SEQUENCES)) as gauge:
        pass
    waves = math.ceil(OUTLAST_SECONDS / gauge.seconds)
    requests = long_requests(pair, "drained", 2 * SEQUENCES * waves)
    drain = ("drain", cluster.node, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=400s")
    with ThreadPoolExecutor(1) as pool, streamed(chat.url(), "chat", requests) as streams:
        until(lambda: streams.accepted == len(requests), "all to be accepted")
        drained = pool.submit(cluster.kubectl, *drain)
        until(lambda: before.isdisjoint(uids(chat.pods())), "both pods to be told to go")
        told = time.monotonic()
        drained.result()
    print(f"{gauge.seconds:.1f} s for the first {len(gauge.records)}, {streams.seconds:.1f} s for {len(requests)}")
    assert [record.error for record in (*gauge.records, *streams.records) if record.error] == []
    found = [record.token_ids for record in streams.records]
    assert found == [expected_continuation(pair, request.prompt_ids, LONG) for request in requests]
    assert any(record.end > told + PRE_STOP_SECONDS for record in streams.records), "vLLM was told to stop when idle"
    assert chat.ready_pods() == []
    cluster.kubectl("uncordon", cluster.node)
    until(lambda: chat.holds("Ready") and serving(chat, 2), "two pods that serve again", 2 * LOADING_SECONDS)
    until(chat.is_reached, "a server behind the Service")
    assert is_right(chat.url(), pair, 3)


def long_requests(pair, name, count):
    """Of which no two are alike: what an engine has computed before it need not compute again."""
    phase = Phase(name, concurrency=count, requests=count, region=0, output_tokens=(LONG, LONG))
    return requests_of(pair, phase, pair.shape.context_tokens, 0)


def test_services_of_an_uninstalled_release_serve_until_the_next_takes_over(cluster, release, chat, pair):
    running = {container.id for container in chat.containers()}
    with asked(chat, pair) as outcome:
        release.uninstall()
        until(lambda: of_release(cluster) == [f"CustomResourceDefinition/{DEFINITION}"], "only the definition", 120)
        until(lambda: outcome.right, "a right answer")
        release.install()
        chat.change(planner={"policy": "nightjar", "switchCost": "80ms"})
        until(lambda: chat.holds("SettingsSynced"), "the next release to bring settings", 120)
    assert outcome.wrong == []
    assert {one["switchCost"]["mode"] for one in chat.sidecars()} == {"80ms"}
    assert {container.id for container in chat.containers()} == running


def test_what_is_deleted_leaves_nothing(cluster, chat):
    containers = {container.id for container in chat.containers()}
    assert of_service(cluster, "chat") != []
    chat.kubectl("delete", "njs/chat")
    until(lambda: of_service(cluster, "chat") == [], "nothing of the service", 180)
    until(lambda: containers.isdisjoint(cluster.containers()), "no container of its pods")


def test_nothing_is_stuck_in_terminating_when_everything_goes_with_the_operators_first(cluster, release):
    left = Service(cluster, "left")
    left.apply()
    (container,) = until(lambda: [one for one in left.containers() if one.name == "engine" and one.id], "an engine")
    release.uninstall()
    assert len(left.pods()) == 1
    cluster.kubectl("delete", "crd", DEFINITION, "--timeout=120s")
    until(lambda: DEFINITION not in kinds(cluster, namespaced=True), "the API to forget it")
    until(lambda: of_service(cluster, "left") == [], "nothing of the service", 180)
    cluster.kubectl("delete", "namespace", objects.NAMESPACE, "--timeout=180s")
    cluster.kubectl("delete", "pv", objects.CLAIM, "--timeout=60s")
    until(lambda: container.id not in cluster.containers(), "no container of its pod")
    assert of_release(cluster) == []
    assert [name(one) for one in everything(cluster) if "deletionTimestamp" in one["metadata"]] == []


def of_service(cluster, service):
    """Every object in the namespace that carries the service's name or owner."""
    return [name(one) for one in everything(cluster, objects.NAMESPACE) if belongs(one["metadata"], service)]


def belongs(metadata, service):
    owners = {owner["name"] for owner in metadata.get("ownerReferences", [])}
    return metadata.get("labels", {}).get("nightjar.dev/service") == service or service in owners


def of_release(cluster):
    """Every object in the cluster that Helm made, or that a controller made of one."""
    return [name(one) for one in everything(cluster) if RELEASE in made_by(one["metadata"])]


def made_by(metadata):
    """The release, by the label of its objects and pods and by the annotation of what has no label."""
    return {
        metadata.get("labels", {}).get("app.kubernetes.io/instance"),
        metadata.get("annotations", {}).get("meta.helm.sh/release-name"),
    }


def everything(cluster, namespace=None):
    """Every object, Events aside; without a namespace, in all of them and outside."""
    if namespace:
        return cluster.json("--namespace", namespace, "get", ",".join(kinds(cluster, namespaced=True)))["items"]
    inside = cluster.json("get", "--all-namespaces", ",".join(kinds(cluster, namespaced=True)))["items"]
    return inside + cluster.json("get", ",".join(kinds(cluster, namespaced=False)))["items"]


def kinds(cluster, *, namespaced):
    listing = ("api-resources", f"--namespaced={str(namespaced).lower()}", "--verbs=list", "--output=name")
    return [kind for kind in cluster.kubectl(*listing).split() if not kind.startswith("events")]


def name(item):
    return f"{item['kind']}/{item['metadata']['name']}"
