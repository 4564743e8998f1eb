"""The model and the definition refuse the same documents and blame the same fields."""

import copy

import pytest

from nightjar_api import service as documents
from nightjar_api.errors import ConfigurationError
from nightjar_api.model import Model
from nightjar_api.service import NightjarServiceSpec
from nightjar_operator.manifests import Images, Owner, manifests

BASE = {
    "apiVersion": "nightjar.dev/v1alpha1",
    "kind": "NightjarService",
    "metadata": {"name": "story"},
    "spec": {"target": {"source": {"path": "/t"}}, "draft": {"source": {"path": "/d"}}},
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def with_spec(edits):
    changed = copy.deepcopy(BASE)
    for path, value in edits.items():
        part = changed["spec"]
        *parents, last = path.split(".")
        for key in parents:
            part = part.setdefault(key, {})
        part[last] = value
    return changed


def node_term(**requirement):
    terms = [{"matchExpressions": [{"key": "zone", **requirement}]}]
    return {"scheduling.affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def pod_term(selector):
    return {"scheduling.affinity": {"podAffinity": {REQUIRED: [{"labelSelector": selector, "topologyKey": "zone"}]}}}


# (edits, the field that is blamed, below spec)
# Of a Secret: the API server takes them in no object.
KEYS_OF_NONE = ["", ".", "..", "..data", "a/b"]
UNPLANNED = ["--pipeline_parallel_size=2", "-pp 2", "-dp 2", "--kv-transfer-config.kv_role both", "--enable-lora"]
INELASTIC = ["--enable-sleep-mode", "--enable-cumem-allocator"]
WRONG = [
    ({"target.source": {}}, "target.source"),
    ({"target.source": {"path": "/t", "hub": {"id": "m"}}}, "target.source"),
    ({"target.source": {"path": "t"}}, "target.source.path"),
    *(({"credentials": {"hubToken": {"name": "hub", "key": key}}}, "credentials.hubToken.key") for key in KEYS_OF_NONE),
    ({"target.source": {"uri": "ftp://b/m"}}, "target.source.uri"),
    ({"target.source": {"pvc": {"claimName": "c", "path": "/a"}}}, "target.source.pvc.path"),
    ({"target.source": {"pvc": {"claimName": "c", "path": "a/../../b"}}}, "target.source.pvc.path"),
    ({"target.source": {"hub": {"id": "a/b/c"}}}, "target.source.hub.id"),
    ({"draft.method": "ngram"}, "draft.source"),
    ({"draft": {"method": "eagle"}}, "draft.source"),
    ({"draft.method": "medusa"}, "draft.method"),
    ({"draft.numSpeculativeTokens": 17}, "draft.numSpeculativeTokens"),
    ({"planner.gammaMax": 4}, "planner.gammaMax"),
    ({"planner.policy": "fixed", "planner.fixedGamma": 4}, "planner.fixedGamma"),
    ({"fallback.gamma": 4}, "fallback.gamma"),
    ({"planner.policy": "static-table"}, "planner.table"),
    ({"planner.policy": "static-table", "planner.table": [[1, 8, 4]]}, "planner.table"),
    ({"planner.table": [[2, 8, 1]]}, "planner.table"),
    ({"planner.table": [[1, 8, 1], [8, 9, 0]]}, "planner.table"),
    ({"planner.table": [[1, 8, 1], [20, 30, 0], [9, 10, 0]]}, "planner.table"),
    ({"planner.table": [[1, 8, 1], [1, 9, 0]]}, "planner.table"),
    ({"planner.table": [[1, 8, 1], [12, 9, 0]]}, "planner.table"),
    ({"planner.table": [[1, 8]]}, "planner.table"),
    ({"planner.table": []}, "planner.table"),
    ({"planner.buckets": [1, 4, 4]}, "planner.buckets"),
    ({"planner.buckets": [4, 1]}, "planner.buckets"),
    ({"planner.planTtl": "9ms"}, "planner.planTtl"),
    ({"planner.planTtl": "61m"}, "planner.planTtl"),
    ({"planner.planTtl": "2"}, "planner.planTtl"),
    ({"planner.switchCost": "soon"}, "planner.switchCost"),
    ({"planner.policy": False}, "planner.policy"),
    ({"memory.dwell": "2h"}, "memory.dwell"),
    ({"memory.tauLow": "101%"}, "memory.tauLow"),
    ({"memory.tauLow": -1}, "memory.tauLow"),
    ({"draft": {"method": "mtp"}, "memory.elastic": True}, "memory.elastic"),
    ({"drainTimeout": "2h"}, "drainTimeout"),
    ({"engine.startupTimeout": "9s"}, "engine.startupTimeout"),
    ({"engine.startupTimeout": "25h"}, "engine.startupTimeout"),
    ({"engine.tensorParallelSize": 2}, "engine.tensorParallelSize"),
    ({"engine.args": ["--seed", "1", "--max_model_len=5"]}, "engine.args"),
    ({"engine.args": ["-tp"]}, "engine.args"),
    ({"engine.args": ["--spec"]}, "engine.args"),
    *(({"engine.args": [*flag.split()]}, "engine.args") for flag in UNPLANNED),
    ({"engine.args": ["--seed", "1", "--no-async-scheduling"]}, "engine.args"),
    *(({"engine.args": [flag], "memory.elastic": True}, "engine.args") for flag in INELASTIC),
    ({"engine.env": {"A=B": "1"}}, "engine.env"),
    ({"engine.env": {"A": 1}}, "engine.env.A"),
    ({"engine.resources.limits": {"nvidia.com/gpu": 2}}, "engine.resources.limits"),
    ({"engine.resources.limits": {"gpu": 1}}, "engine.resources.limits"),
    ({"engine.resources.limits": {"example.com/nic": "500m"}}, "engine.resources.limits"),
    ({"engine.resources.limits": {"cpu": "many"}}, "engine.resources.limits.cpu"),
    ({"engine.resources.requests": {"nvidia.com/gpu": 1}}, "engine.resources.requests"),
    (
        {"engine.resources": {"requests": {"memory": "3G"}, "limits": {"memory": "2Gi"}}},
        "engine.resources.requests",
    ),
    ({"scheduling.nodeSelector": {"a b": "c"}}, "scheduling.nodeSelector"),
    ({"scheduling.tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}, "scheduling.tolerations"),
    ({"scheduling.tolerations": [{"value": "b"}]}, "scheduling.tolerations"),
    ({"scheduling.tolerations": [{"key": "a", "tolerationSeconds": 1}]}, "scheduling.tolerations"),
    (
        {"scheduling.topologySpreadConstraints": [{"topologyKey": "a"}, {"topologyKey": "a"}]},
        "scheduling.topologySpreadConstraints",
    ),
    (node_term(operator="In"), "scheduling.affinity.nodeAffinity"),
    (node_term(operator="Exists", values=["a"]), "scheduling.affinity.nodeAffinity"),
    (node_term(operator="Gt", values=["a"]), "scheduling.affinity.nodeAffinity"),
    (node_term(operator="Gt", values=["1", "2"]), "scheduling.affinity.nodeAffinity"),
    (pod_term({"matchLabels": {"a b": "c"}}), "scheduling.affinity.podAffinity"),
    (pod_term({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}), "scheduling.affinity.podAffinity"),
    ({"cache": {}}, "cache"),
    ({"cache": {"claimName": "c", "size": "1Gi"}}, "cache"),
    ({"cache": {"size": "0Gi"}}, "cache.size"),
    ({"cache": {"claimName": "c", "storageClassName": "s"}}, "cache.storageClassName"),
    ({"cache": {"size": "1Gi"}, "replicas": 2}, "cache.accessMode"),
    ({"cache": {"size": "1Gi"}, "autoscaling": {"maxReplicas": 2}}, "cache.accessMode"),
    ({"autoscaling": {"minReplicas": 3, "maxReplicas": 2}}, "autoscaling.maxReplicas"),
    ({"draft": {"method": "mtp"}, "autoscaling": {"maxReplicas": 2}}, "autoscaling.metric"),
    ({"disruption": {}}, "disruption"),
    ({"disruption": {"minAvailable": 1, "maxUnavailable": 1}}, "disruption"),
    ({"monitoring": {"labels": {"a b": "c"}}}, "monitoring.labels"),
    ({"service": {"annotations": {"a b": "c"}}}, "service.annotations"),
    ({"rollout": {"maxUnavailable": 0}}, "rollout.maxUnavailable"),
    ({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "imagePullSecrets"),
    ({"security.runAsUser": 0}, "security.runAsUser"),
    ({"replicas": -1}, "replicas"),
    ({"target.dtype": "int8"}, "target.dtype"),
    ({"target.servedName": ""}, "target.servedName"),
    ({"unknown": 1}, "unknown"),
]

RIGHT = [
    {},
    *({"credentials": {"hubToken": {"name": "hub", "key": key}}} for key in (".a", "a..b", "-", "_", "HF_TOKEN.1")),
    {"draft": {"method": "ngram"}, "autoscaling": {"maxReplicas": 2, "metric": "requests"}},
    {"draft.method": "eagle3", "engine.tensorParallelSize": 2},
    {"draft": None, "engine.tensorParallelSize": 64},
    {"memory": {"elastic": True}},
    {"planner": {"policy": "fixed", "fixedGamma": 3, "gammaMax": 3, "planTtl": "10ms", "switchCost": "1.5s"}},
    {"planner": {"policy": "static-table", "table": [[1, 4, 3], [5, 5, 1], [9, 500, 0]]}},
    {"planner.planTtl": "10000us"},
    {"planner.planTtl": "1h"},
    {"engine.device": "cpu", "memory": {"elastic": True, "tauLow": 2000, "dwell": "60m"}},
    {"engine.args": ["--enforce-eager", "-", "--", "--seed", "-1", "", "--no-enable-prefix-caching"]},
    {"engine.args": INELASTIC},
    {"engine.args": ["--async-scheduling", "--no-enable-lora", "--data-parallel-size-local", "1"]},
    {"engine.args": ["--no-async-scheduling"], "engine.device": "cpu"},
    {"engine.args": ["--no-async-scheduling", *UNPLANNED], "draft.method": "eagle3"},
    {"engine.args": ["--no-async-scheduling", *UNPLANNED, *INELASTIC], "draft": None},
    {"engine.resources": {"requests": {"memory": "2G", "cpu": 4}, "limits": {"memory": "2Gi", "nvidia.com/gpu": "1"}}},
    {"cache": {"size": "1Gi", "accessMode": "ReadWriteMany"}, "replicas": 2},
    {"scheduling.tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute"}]},
    node_term(operator="Gt", values=["3"]),
    pod_term({}),
    {"disruption": {"minAvailable": 0}},
    {"drainTimeout": "0s"},
]


def refused_here(document):
    """What the model or the manifests say; None when both take it."""
    try:
        service = documents.from_object(document)
        manifests(service, Owner("default", "story", "u"), Images("e", "s"))
    except ConfigurationError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("edits", "field"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_document_is_refused_on_both_sides_with_the_same_field(server, edits, field):
    here, there = refused_here(with_spec(edits)), server.create(with_spec(edits))
    assert here is not None
    assert there.found is None
    assert f"spec.{field}" in here
    assert f"spec.{field}" in there.refusal


@pytest.mark.parametrize("edits", RIGHT)
def test_a_right_document_is_taken_on_both_sides_and_means_the_same(server, edits):
    there = server.create(with_spec(edits))
    assert there.found is not None, there.refusal
    assert refused_here(with_spec(edits)) is None
    # The API server fills in the defaults that the model has.
    assert documents.from_object(there.found) == documents.from_object(with_spec(edits))


def all_rules(model, seen=None):
    seen = set() if seen is None else seen
    if model in seen:
        return []
    seen.add(model)
    inner = [part for field in model.model_fields.values() for part in models_in(field.annotation)]
    return [(model.__name__, rule) for rule in model.rules] + [pair for part in inner for pair in all_rules(part, seen)]


def models_in(kind):
    if isinstance(kind, type) and issubclass(kind, Model):
        return [kind]
    return [part for inner in getattr(kind, "__args__", ()) for part in models_in(inner)]


def test_every_rule_of_the_model_is_broken_by_a_document_above(server):
    refusals = "\n".join(server.create(with_spec(edits)).refusal for edits, _ in WRONG)
    unbroken = [
        f"{name}.{rule.field}: {rule.requires}"
        for name, rule in all_rules(NightjarServiceSpec)
        if rule.requires not in refusals
    ]
    assert unbroken == []
