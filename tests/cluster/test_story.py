"""One service from its first pod to its last, on a real node: a story, each test begins where the last ended."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from nightjar_benchmarks.operator_figures.real_pods import tuning
from nightjar_benchmarks.pairs.reference import expected_continuation, random_prompt
from nightjar_benchmarks.real_cluster import objects
from nightjar_benchmarks.real_cluster.clients import ask, under_load
from nightjar_benchmarks.real_cluster.service import eventually

# Two engines that load at the same time on two cores, which others may be using.
LOADING_SECONDS = 400
# So many long answers take both engines longer than the endpoint's removal.
CLIENTS, LONG = 16, 1900
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


def plans(service, count):
    """Whether so many sidecars steer their engine."""
    try:
        return [one["ready"] for one in service.sidecars()] == [True] * count
    except httpx.HTTPError:
        return False


# Images may have to be built and loaded before.
@pytest.mark.timeout(2400)
def test_the_operator_runs_as_a_pod_with_its_own_account(cluster):
    rollout = ("rollout", "status", f"deployment/{objects.OPERATOR}", "--timeout=120s")
    cluster.kubectl("--namespace", objects.NAMESPACE, *rollout)


def test_what_kubectl_applies_serves(chat, pair):
    chat.apply()
    until(lambda: chat.holds("Ready"), "Ready", LOADING_SECONDS)
    assert is_right(chat.url(), pair, 1)
    until(lambda: chat.holds("RolledOut"), "RolledOut")


def test_the_planner_is_in_control(chat, pair):
    with under_load(chat.url(), "chat", pair) as outcome:
        until(lambda: chat.holds("Adaptive") and chat.holds("SettingsSynced"), "Adaptive and SettingsSynced")
        until(lambda: chat.found()["status"]["speculation"].get("tokensPerSecond"), "tokens per second in status")
    assert outcome.wrong == []
    assert outcome.right > 0


def test_settings_are_obeyed_within_ten_seconds_and_restart_nothing(chat, pair):
    with under_load(chat.url(), "chat", pair) as outcome:
        figures = tuning(chat)
    print(figures)
    assert figures["tuning_restarts"].value == 0
    assert figures["tuning_latency_s"].value <= 10, figures["tuning_latency_s"].raw
    assert outcome.wrong == []
    until(lambda: chat.holds("SettingsSynced"), "SettingsSynced")


def test_it_is_scaled_to_two(chat):
    chat.kubectl("scale", "njs/chat", "--replicas=2")
    until(lambda: serving(chat, 2) and chat.holds("RolledOut"), "two pods that serve", LOADING_SECONDS)
    assert chat.found()["status"]["readyReplicas"] == 2


def test_a_killed_sidecar_comes_back_and_no_request_fails(cluster, chat, pair):
    sidecar = next(container for container in chat.containers() if container.name == "sidecar")
    engines = restarts(chat, "engine")
    with under_load(chat.url(), "chat", pair) as outcome:
        cluster.kill(sidecar.id)
        until(lambda: restarts(chat, "sidecar")[sidecar.pod] == sidecar.restarts + 1, "a sidecar that is restarted")
        until(lambda: plans(chat, 2), "a sidecar that plans again")
        until(lambda: serving(chat, 2), "its pod to be in service again")
    assert outcome.wrong == []
    assert restarts(chat, "engine") == engines


def test_a_new_engine_argument_is_rolled_out_without_a_failed_request(chat, pair):
    before = {pod["metadata"]["uid"] for pod in chat.pods()}
    with under_load(chat.url(), "chat", pair) as outcome:
        chat.change(engine={"args": [*objects.ENGINE_ARGS, "--max-num-seqs=16"]})
        until(lambda: chat.holds("RolledOut") and serving(chat, 2), "a finished rollout", 2 * LOADING_SECONDS)
    assert outcome.wrong == []
    assert outcome.right > 0
    assert before.isdisjoint({pod["metadata"]["uid"] for pod in chat.pods()})
    commands = [pod["spec"]["containers"][0]["command"] for pod in chat.pods()]
    assert all("--max-num-seqs=16" in command for command in commands)


def test_a_killed_engine_comes_back_while_the_other_serves(cluster, chat, pair):
    engine = next(container for container in chat.containers() if container.name == "engine")
    sidecars = restarts(chat, "sidecar")
    cluster.kill(engine.id)
    until(lambda: restarts(chat, "engine")[engine.pod] == engine.restarts + 1, "an engine that is restarted")
    until(lambda: len(chat.ready_pods()) == 1, "the pod to be out of service")
    # The endpoint goes a moment after the pod's condition.
    until(lambda: tried(chat.url(), pair), "an answer of the other")
    with under_load(chat.url(), "chat", pair) as outcome:
        until(lambda: serving(chat, 2), "both to serve", LOADING_SECONDS)
        until(lambda: plans(chat, 2), "both sidecars to plan")
    assert outcome.wrong == []
    assert restarts(chat, "sidecar") == sidecars


def test_a_killed_operator_comes_back_and_goes_on(cluster, chat):
    running = {container.id for container in chat.containers()}
    (killed,) = until(lambda: operators(cluster), "an operator")
    cluster.kill(killed)
    chat.change(planner={"policy": "nightjar", "switchCost": "70ms"})
    until(lambda: operators(cluster) - {killed}, "an operator that is restarted")
    until(lambda: chat.holds("SettingsSynced"), "SettingsSynced", 120)
    assert {one["switchCost"]["mode"] for one in chat.sidecars()} == {"70ms"}
    assert {container.id for container in chat.containers()} == running


def operators(cluster):
    """IDs of the operator's containers that run."""
    pods = cluster.json("--namespace", objects.NAMESPACE, "get", "pods", "--selector", f"app={objects.OPERATOR}")
    found = [one for pod in pods["items"] for one in pod["status"].get("containerStatuses", [])]
    return {one["containerID"].rpartition("//")[2] for one in found if "running" in one["state"]}


def test_a_drained_node_lets_running_requests_finish(cluster, chat, pair):
    prompts = [random_prompt(pair, 0, pair.shape.context_tokens, 100 + number) for number in range(CLIENTS)]
    url = chat.url()
    with ThreadPoolExecutor(CLIENTS) as pool:
        answers = [pool.submit(ask, url, "chat", prompt, LONG) for prompt in prompts]
        # The Service spreads them as it likes, and what is too much for one engine waits there.
        until(lambda: sum(map(in_engine, chat.sidecars())) == CLIENTS, "all to have reached an engine")
        cluster.kubectl("drain", cluster.node, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=240s")
        found = [answer.result() for answer in answers]
    assert found == [expected_continuation(pair, prompt, LONG) for prompt in prompts]
    assert chat.ready_pods() == []
    cluster.kubectl("uncordon", cluster.node)
    until(lambda: chat.holds("Ready") and serving(chat, 2), "two pods that serve again", 2 * LOADING_SECONDS)
    assert is_right(chat.url(), pair, 3)


def in_engine(sidecar):
    return sum(sidecar["steps"][kind] or 0 for kind in ("running", "waiting"))


def test_what_is_deleted_leaves_nothing(cluster, chat):
    containers = {container.id for container in chat.containers()}
    assert of_service(cluster) != []
    chat.kubectl("delete", "njs/chat")
    until(lambda: of_service(cluster) == [], "nothing of the service", 180)
    until(lambda: containers.isdisjoint(cluster.containers()), "no container of its pods")
    chat.kubectl("delete", "deployment", objects.OPERATOR)


def of_service(cluster):
    """Every object in the namespace that carries the service's name or owner, Events aside."""
    kinds = cluster.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
    listed = ",".join(kind for kind in kinds if not kind.startswith("events"))
    found = cluster.json("--namespace", objects.NAMESPACE, "get", listed)["items"]
    return [f"{item['kind']}/{item['metadata']['name']}" for item in found if belongs(item["metadata"])]


def belongs(metadata):
    owners = {owner["name"] for owner in metadata.get("ownerReferences", [])}
    return metadata.get("labels", {}).get("nightjar.dev/service") == "chat" or "chat" in owners


def tried(url, pair):
    try:
        return is_right(url, pair, 2)
    except httpx.HTTPError:
        return False
