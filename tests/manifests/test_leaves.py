"""Every leaf of the spec does something, and this table says what.

`template` rolls the pods, `live` reaches running pods through the settings file, anything else is the kind of the
one other object that changes.
"""

import pytest

from nightjar_api.service import NightjarServiceSpec
from nightjar_operator.schema import structural

# What only a draft that is planned for may have beside it.
NOT_FOR_THE_PLANNER = {"memory.elastic": False, "autoscaling.metric": "requests"}
HUB = {"hub": {"id": "organisation/other", "revision": "v1"}}

# Leaf of documents/full.yaml: (value, effect) or (value, effect, edits before).
LEAVES = {
    "target.source.hub.id": ("organisation/model", "template", {"target.source": HUB}),
    "target.source.hub.revision": ("v2", "template", {"target.source": HUB}),
    "target.source.pvc.claimName": ("others", "template"),
    "target.source.pvc.path": ("larger", "template"),
    "target.source.path": ("/models/b", "template", {"target.source": {"path": "/models/a"}}),
    "target.source.uri": ("gs://b/m", "template", {"target.source": {"uri": "s3://a/m"}}),
    "target.servedName": ("larger", "template"),
    "target.dtype": ("float16", "template"),
    "target.maxModelLen": (4096, "template"),
    "draft.method": ("eagle", "template", NOT_FOR_THE_PLANNER),
    "draft.source.hub.id": ("organisation/model", "template", {"draft.source": HUB}),
    "draft.source.hub.revision": ("v2", "template", {"draft.source": HUB}),
    "draft.source.pvc.claimName": ("others", "template"),
    "draft.source.pvc.path": ("smaller", "template"),
    "draft.source.path": ("/models/b", "template", {"draft.source": {"path": "/models/a"}}),
    "draft.source.uri": ("gs://b/m", "template", {"draft.source": {"uri": "s3://a/m"}}),
    "draft.numSpeculativeTokens": (6, "template"),
    "credentials.hubToken.name": ("other", "template"),
    "credentials.hubToken.key": ("other", "template"),
    "credentials.objectStore.name": ("other", "template"),
    "replicas": (3, "Deployment"),
    "engine.image": ("example.com/engine:2", "template"),
    "engine.device": ("cpu", "template"),
    "engine.tensorParallelSize": (4, "template", {"draft.method": "eagle", **NOT_FOR_THE_PLANNER}),
    "engine.resources.requests": ({"cpu": 8}, "template"),
    "engine.resources.limits": ({"memory": "128Gi"}, "template"),
    "engine.port": (9000, "template"),
    "engine.args": (["--seed", "8"], "template"),
    "engine.env": ({"NCCL_DEBUG": "INFO"}, "template"),
    "engine.catchUpTokens": (512, "template"),
    "engine.draftTiles": ("/models/draft/tiles.json", "template"),
    "engine.startupTimeout": ("2h", "template"),
    "sidecar.image": ("example.com/sidecar:2", "template"),
    "sidecar.resources.requests": ({"cpu": "200m"}, "template"),
    "sidecar.resources.limits": ({"memory": "1Gi"}, "template"),
    "planner.policy": ("fixed", "live"),
    "planner.gammaMax": (2, "live"),
    "planner.fixedGamma": (1, "live"),
    "planner.table": ([[1, 8, 3]], "live"),
    "planner.switchCost": ("12ms", "live"),
    "planner.buckets": ([1, 2], "live"),
    "planner.planTtl": ("3s", "live"),
    "memory.elastic": (False, "template"),
    "memory.tauLow": (2000, "live"),
    "memory.persistSteps": (5, "live"),
    "memory.dwell": ("1m", "live"),
    "fallback.gamma": (0, "template"),
    "drainTimeout": ("60s", "template"),
    "scheduling.nodeSelector": ({"zone": "a"}, "template"),
    "scheduling.tolerations.0.key": ("other", "template"),
    "scheduling.tolerations.0.operator": ("Exists", "template", {"scheduling.tolerations.0.value": ""}),
    "scheduling.tolerations.0.value": ("other", "template"),
    "scheduling.tolerations.0.effect": ("NoSchedule", "template", {"scheduling.tolerations.0.tolerationSeconds": None}),
    "scheduling.tolerations.0.tolerationSeconds": (30, "template"),
    "scheduling.topologySpreadConstraints.0.maxSkew": (2, "template"),
    "scheduling.topologySpreadConstraints.0.topologyKey": ("zone", "template"),
    "scheduling.topologySpreadConstraints.0.whenUnsatisfiable": ("DoNotSchedule", "template"),
    "scheduling.runtimeClassName": ("other", "template"),
    "scheduling.priorityClassName": ("other", "template"),
    "cache.claimName": ("b", "template", {"cache": {"claimName": "a"}}),
    "cache.size": ("200Gi", "PersistentVolumeClaim"),
    "cache.storageClassName": ("other", "PersistentVolumeClaim"),
    "cache.accessMode": ("ReadWriteOnce", "PersistentVolumeClaim", {"replicas": 1, "autoscaling": None}),
    "service.type": ("NodePort", "Service"),
    "service.port": (8080, "Service"),
    "service.annotations": ({"example.com/team": "other"}, "Service"),
    "autoscaling.minReplicas": (3, "HorizontalPodAutoscaler"),
    "autoscaling.maxReplicas": (7, "HorizontalPodAutoscaler"),
    "autoscaling.metric": ("nightjar_requests_running", "HorizontalPodAutoscaler"),
    "autoscaling.target": (5, "HorizontalPodAutoscaler"),
    "disruption.minAvailable": (2, "PodDisruptionBudget", {"disruption": {"minAvailable": 1}}),
    "disruption.maxUnavailable": (2, "PodDisruptionBudget"),
    "monitoring.interval": ("30s", "PodMonitor"),
    "monitoring.labels": ({"release": "other"}, "PodMonitor"),
    "rollout.maxSurge": (0, "Deployment"),
    "rollout.maxUnavailable": (2, "Deployment"),
    "security.runAsUser": (30001, "template"),
    "security.runAsGroup": (30001, "template"),
    "security.fsGroup": (30001, "template"),
    "security.supplementalGroups": ([30001], "template"),
    "security.readOnlyRootFilesystem": (False, "template"),
    "imagePullSecrets.0.name": ("other", "template"),
}
# Below scheduling.affinity the same few fields stand in many places.
AFFINITY = {
    "key": "other",
    "operator": "NotIn",
    "values": ["b"],
    "weight": 20,
    "matchLabels": {"app": "other"},
    "topologyKey": "rack",
    "namespaces": ["other"],
}


def leaves(schema, path=()):
    if schema.get("properties"):
        return [leaf for name, inner in schema["properties"].items() for leaf in leaves(inner, (*path, name))]
    if schema.get("type") == "array" and schema["items"].get("properties"):
        return leaves(schema["items"], (*path, "0"))
    return [".".join(path)]


ALL = leaves(structural(NightjarServiceSpec))


def row(leaf):
    if leaf.startswith("scheduling.affinity."):
        return AFFINITY[leaf.rpartition(".")[2]], "template", {}
    value, effect, *before = LEAVES[leaf]
    return value, effect, before[0] if before else {}


def effects(one, other):
    """Kinds that differ; of a Deployment whether its template does, of a ConfigMap that it is live."""
    assert one.keys() == other.keys() or "ConfigMap" in one.keys() ^ other.keys()
    found = {kind for kind in one.keys() & other.keys() if one[kind] != other[kind]}
    if one["Deployment"]["spec"]["template"] != other["Deployment"]["spec"]["template"]:
        # Other objects may follow: a probe's budget gives the rollout its deadline.
        return "template"
    return {frozenset({"ConfigMap"}): "live"}.get(frozenset(found)) or ", ".join(sorted(found))


def test_the_table_names_every_leaf_of_the_spec_and_no_other():
    named = set(LEAVES) | {leaf for leaf in ALL if leaf.startswith("scheduling.affinity.")}
    assert named == set(ALL)


@pytest.mark.parametrize("leaf", ALL)
def test_a_leaf_has_the_effect_the_table_says(build, leaf):
    value, effect, before = row(leaf)
    assert effects(build("full", before), build("full", {**before, leaf: value})) == effect


@pytest.mark.parametrize(
    "leaf", [leaf for leaf in ALL if leaf.startswith(("planner.", "memory.")) and leaf != "memory.elastic"]
)
def test_planner_and_memory_never_change_the_pod_template_but_whether_there_is_elastic_memory(build, leaf):
    value, _, _ = row(leaf)
    before, after = build("full"), build("full", {leaf: value})
    assert before["Deployment"] == after["Deployment"]
    assert before["ConfigMap"] != after["ConfigMap"]
