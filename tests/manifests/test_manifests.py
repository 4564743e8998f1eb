"""What the manifests of a service promise."""

import json

import pytest

from nightjar_api import service as documents
from nightjar_api.errors import ConfigurationError
from nightjar_operator.manifests import Owner, selector, url

# A draft that is not planned for, in place of the document's.
UNPLANNED = {"draft.method": "eagle", "memory.elastic": False, "autoscaling.metric": "requests"}
CORE = {"Deployment", "Service", "ConfigMap"}
ALL_KINDS = CORE | {"PersistentVolumeClaim", "HorizontalPodAutoscaler", "PodDisruptionBudget", "PodMonitor"}


def value(command, flag):
    return command[command.index(flag) + 1]


def engine(pod):
    (container,) = pod["containers"]
    return container


def sidecar(pod):
    (container,) = pod["initContainers"]
    return container


def environment(container):
    return {entry["name"]: entry.get("value") or entry["valueFrom"] for entry in container["env"]}


def mounts(container):
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


def test_every_object_is_made_only_when_the_spec_asks_for_it(build):
    assert build("minimal").keys() == CORE - {"ConfigMap"}
    assert build("object-store").keys() == CORE
    assert build("full").keys() == ALL_KINDS


def test_a_claim_that_exists_is_not_made(build):
    assert "PersistentVolumeClaim" not in build("ngram-cpu")


def test_every_object_says_whose_it_is_and_goes_with_its_owner(build):
    for manifest in build("full").values():
        metadata = manifest["metadata"]
        assert metadata["namespace"] == "prod"
        assert metadata["labels"]["nightjar.dev/service"] == "chat"
        assert metadata["labels"]["app.kubernetes.io/name"] == "nightjar"
        assert metadata["labels"]["app.kubernetes.io/instance"] == "chat"
        assert metadata["labels"]["app.kubernetes.io/managed-by"] == "nightjar-operator"
        assert metadata["labels"]["app.kubernetes.io/component"]
        (owner,) = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("NightjarService", "chat", True)
        assert "finalizers" not in metadata


def test_a_persons_labels_on_the_pod_monitor_do_not_hide_ours(build):
    labels = build("full", {"monitoring.labels": {"nightjar.dev/service": "other", "release": "p"}})["PodMonitor"][
        "metadata"
    ]["labels"]
    assert (labels["nightjar.dev/service"], labels["release"]) == ("chat", "p")


def test_the_service_the_budget_and_the_monitor_select_the_pods(build):
    found = build("full")
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    chosen = selector(Owner("prod", "chat", "u"))
    assert chosen.items() <= labels.items()
    assert found["Deployment"]["spec"]["selector"]["matchLabels"] == chosen
    assert found["Service"]["spec"]["selector"] == chosen
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == chosen
    assert found["PodMonitor"]["spec"]["selector"]["matchLabels"] == chosen


def test_the_sidecar_is_a_native_one_that_cannot_take_the_pod_out_of_service(pod):
    found = sidecar(pod("full"))
    assert found["restartPolicy"] == "Always"
    # A readiness probe would gate the pod, a startup probe the engine.
    assert not {"readinessProbe", "startupProbe"} & found.keys()


@pytest.mark.parametrize(("timeout", "seconds"), [("1h", 3600), ("30m", 1800), ("95s", 100), ("24h", 86_400)])
def test_loading_has_the_time_that_the_document_gives_it(build, timeout, seconds):
    deployment = build("full", {"engine.startupTimeout": timeout})["Deployment"]["spec"]
    probe = engine(deployment["template"]["spec"])["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == seconds
    assert deployment["progressDeadlineSeconds"] > seconds - probe["periodSeconds"]


@pytest.mark.parametrize(("timeout", "seconds"), [("0s", 0), ("30s", 30), ("1.5s", 2), ("1h", 3600)])
def test_a_pod_is_killed_only_after_it_was_out_of_service_and_its_requests_had_their_time(pod, timeout, seconds):
    found = pod("full", {"drainTimeout": timeout})
    before = engine(found)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert value(engine(found)["command"], "--shutdown-timeout") == str(seconds)
    assert before > 0
    assert found["terminationGracePeriodSeconds"] > before + seconds


def test_by_default_a_rollout_needs_no_more_gpus_than_the_service_has(build):
    strategy = build("minimal")["Deployment"]["spec"]["strategy"]["rollingUpdate"]
    assert strategy == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize(
    ("edits", "gpus"),
    [
        ({}, "1"),
        ({**UNPLANNED, "engine.tensorParallelSize": 8}, "8"),
        ({"engine.device": "cpu"}, None),
        ({"engine.resources.limits": {"nvidia.com/mig-3g.71gb": 2}}, None),
        ({"engine.resources.limits": {"nvidia.com/gpu": "1"}}, "1"),
    ],
)
def test_a_pod_asks_for_a_gpu_for_each_part_of_the_model(pod, edits, gpus):
    assert engine(pod("full", edits))["resources"]["limits"].get("nvidia.com/gpu") == gpus


@pytest.mark.parametrize(("device", "gpus"), [("cuda", "1"), ("cpu", None)])
def test_elastic_memory_reaches_the_engine_and_its_policy_the_sidecar(build, device, gpus):
    policy = {"elastic": True, "tauLow": 200, "persistSteps": 5, "dwell": "1m"}
    found = build("full", {"engine.device": device, "memory": policy})
    container = engine(found["Deployment"]["spec"]["template"]["spec"])
    assert json.loads(value(container["command"], "--additional-config"))["nightjar"]["elastic"] is True
    assert json.loads(found["ConfigMap"]["data"]["settings.json"])["memory"] == policy
    # Room for the copy of the draft's weights is the document's to give: nobody here knows how large they are.
    assert (container["resources"]["requests"]["memory"], container["resources"]["limits"]["memory"]) == (
        "32Gi",
        "64Gi",
    )
    assert container["resources"]["limits"].get("nvidia.com/gpu") == gpus


def test_nothing_runs_as_root_or_writes_to_its_image(pod):
    found = pod("full")
    assert found["securityContext"]["runAsNonRoot"]
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (engine(found), sidecar(found)):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        }


def test_both_containers_are_one_user_because_only_that_user_may_open_the_socket(pod):
    found = pod("full")
    assert found["securityContext"]["runAsUser"] == 20001
    assert all("runAsUser" not in container["securityContext"] for container in (engine(found), sidecar(found)))


def test_the_engine_can_write_where_it_must(pod):
    places = mounts(engine(pod("full")))
    assert (places["tmp"], places["shm"], places["cache"]) == ("/tmp", "/dev/shm", "/cache")  # noqa: S108
    assert environment(engine(pod("full")))["HOME"] == "/cache"


def test_the_containers_meet_at_the_socket(pod):
    found = pod("full")
    socket = json.loads(value(engine(found)["command"], "--additional-config"))["nightjar"]["socket"]
    assert value(sidecar(found)["command"], "--engine-socket") == socket
    for container in (engine(found), sidecar(found)):
        assert socket.startswith(mounts(container)["socket"] + "/")


def test_the_sidecar_reads_the_settings_that_the_config_map_holds(build):
    found = build("full")
    container = sidecar(found["Deployment"]["spec"]["template"]["spec"])
    (name,) = found["ConfigMap"]["data"]
    assert value(container["command"], "--settings") == f"{mounts(container)['settings']}/{name}"
    # A single file mounted by subPath would never change.
    assert all("subPath" not in mount for mount in container["volumeMounts"])
    (volume,) = [v for v in found["Deployment"]["spec"]["template"]["spec"]["volumes"] if v["name"] == "settings"]
    assert volume["configMap"]["name"] == found["ConfigMap"]["metadata"]["name"]


def test_both_containers_listen_where_the_kubelet_and_prometheus_come_from(build):
    found = build("full")
    pod = found["Deployment"]["spec"]["template"]["spec"]
    for container in (engine(pod), sidecar(pod)):
        assert value(container["command"], "--host") == "0.0.0.0"  # noqa: S104
        assert value(container["command"], "--port") == str(container["ports"][0]["containerPort"])
    named = {container["ports"][0]["name"] for container in (engine(pod), sidecar(pod))}
    assert {endpoint["port"] for endpoint in found["PodMonitor"]["spec"]["podMetricsEndpoints"]} == named
    assert found["Service"]["spec"]["ports"][0]["targetPort"] in named


def test_models_on_volumes_are_mounted_read_only_where_the_engine_looks(pod):
    found = pod("full")
    command = engine(found)["command"]
    assert command[2] == "/models/target/large"
    assert json.loads(value(command, "--speculative-config"))["model"] == "/models/draft/small"
    mounted = [mount for mount in engine(found)["volumeMounts"] if mount["mountPath"].startswith("/models/")]
    assert {mount["mountPath"] for mount in mounted} == {"/models/target", "/models/draft"}
    assert all(mount["readOnly"] for mount in mounted)


def test_a_model_of_the_hub_is_pinned_to_its_revision(pod):
    command = engine(pod("object-store"))["command"]
    assert (command[2], value(command, "--revision")) == ("organisation/model", "0f3c2d1")


def test_a_draft_in_an_object_store_is_streamed_with_the_keys_of_its_secret(pod):
    found = engine(pod("object-store"))
    speculation = json.loads(value(found["command"], "--speculative-config"))
    assert speculation["model"] == "s3://models/small"
    assert speculation["draft_load_config"] == {"load_format": "runai_streamer"}
    assert found["envFrom"] == [{"secretRef": {"name": "store"}}]


def test_the_hubs_token_never_stands_in_a_manifest(pod):
    assert environment(engine(pod("full")))["HF_TOKEN"] == {"secretKeyRef": {"name": "hub", "key": "token"}}


@pytest.mark.parametrize(
    ("draft", "config"),
    [
        ({"method": "ngram"}, {"method": "ngram", "num_speculative_tokens": 3}),
        ({"method": "mtp"}, {"method": "mtp", "num_speculative_tokens": 3}),
        (
            {"method": "eagle3", "source": {"hub": {"id": "o/head", "revision": "v1"}}},
            {"method": "eagle3", "model": "o/head", "revision": "v1", "num_speculative_tokens": 3},
        ),
    ],
)
def test_vllms_own_methods_run_without_plugin_sidecar_and_settings(build, draft, config):
    found = build("minimal", {"draft": draft})
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert json.loads(value(engine(pod)["command"], "--speculative-config")) == config
    assert "--additional-config" not in engine(pod)["command"]
    assert "initContainers" not in pod
    assert "ConfigMap" not in found


def test_the_autoscaler_scales_the_service_so_that_nobody_fights_over_replicas(build):
    found = build("full")
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["kind"] == "NightjarService"
    assert found["Deployment"]["spec"]["replicas"] == 2


def test_the_spread_of_pods_counts_the_services_own(pod):
    (spread,) = pod("full")["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == selector(Owner("prod", "chat", "u"))


def test_dollar_signs_reach_the_engine_as_they_are_written(pod):
    found = engine(pod("minimal", {"engine.args": ["--seed", "$(HOME)"], "engine.env": {"A": "$(B) $$"}}))
    # Kubernetes turns two dollar signs into one, and does not look what follows.
    assert found["command"][-1] == "$$(HOME)"
    assert environment(found)["A"] == "$$(B) $$$$"


def test_a_document_goes_before_the_operators_images(build):
    images = {
        container["name"]: container["image"]
        for container in (
            engine(build("full")["Deployment"]["spec"]["template"]["spec"]),
            sidecar(build("full")["Deployment"]["spec"]["template"]["spec"]),
        )
    }
    assert images == {"engine": "example.com/engine:1", "sidecar": "example.com/sidecar:1"}
    assert engine(build("minimal")["Deployment"]["spec"]["template"]["spec"])["image"].endswith("engine:0.1")


def test_a_model_folder_that_no_pod_could_find_is_refused_with_its_path(build):
    with pytest.raises(ConfigurationError, match=r"spec\.target\.source\.path: an absolute path is required, found"):
        build("minimal", {"target.source": {"path": "out/pair/target"}})


@pytest.mark.parametrize(
    ("port", "expected"), [(80, "http://chat.prod.svc/v1"), (8000, "http://chat.prod.svc:8000/v1")]
)
def test_the_url_is_that_of_the_service(read, port, expected):
    service = documents.from_object(read("full", {"service.port": port}))
    assert url(service, Owner("prod", "chat", "u")) == expected


def test_equal_documents_give_equal_bytes(build):
    assert json.dumps(build("full")) == json.dumps(build("full"))
