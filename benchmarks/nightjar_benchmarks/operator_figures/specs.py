"""Documents as people write them, right ones and wrong ones, from a seed."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

Document = dict[str, Any]
T = TypeVar("T")
_WRONG = 0.04


def document(random: Random) -> Document:
    """A whole document; about half of them are damaged in one or two places."""
    found = {
        "apiVersion": "nightjar.dev/v1alpha1",
        "kind": "NightjarService",
        "metadata": {"name": random.choice(["chat", "a", "story-2", "s" * 63])},
        "spec": _spec(random),
    }
    for _ in range(random.choice([0, 0, 0, 1, 1, 2])):
        _damage(random, found)
    return found


def _spec(random: Random) -> Document:
    draft = _draft(random)
    most = draft["numSpeculativeTokens"] if draft else 16
    found: Document = {"target": _target(random)}
    if draft:
        found["draft"] = draft
    optional: dict[str, Callable[[], Any]] = {
        "credentials": lambda: _credentials(random),
        "replicas": lambda: random.choice([0, 1, 2, 7]),
        "engine": lambda: _engine(random),
        "sidecar": lambda: {"image": "example.com/sidecar:1", "resources": _resources(random)},
        "planner": lambda: _planner(random, most),
        "memory": lambda: _memory(random),
        "fallback": lambda: {"gamma": random.randint(0, most)},
        "drainTimeout": lambda: random.choice(["0s", "30s", "1.5s", "10m", "1h"]),
        "scheduling": lambda: _scheduling(random),
        "cache": lambda: _cache(random),
        "service": lambda: _service(random),
        "autoscaling": lambda: _autoscaling(random),
        "disruption": lambda: {random.choice(["minAvailable", "maxUnavailable"]): random.randint(0, 3)},
        "monitoring": lambda: {"interval": "30s", "labels": _labels(random)},
        "rollout": lambda: {"maxSurge": random.randint(0, 2), "maxUnavailable": _mostly(random, [1, 2], 0)},
        "security": lambda: {"runAsUser": random.randint(1, 70000), "supplementalGroups": [44]},
        "imagePullSecrets": lambda: [{"name": "registry"}, {"name": _mostly(random, ["other"], "registry")}],
    }
    # Few parts in most documents: a rare part is then seen alone as well as together with others.
    share = random.choice([0.1, 0.3, 0.8])
    return found | {name: make() for name, make in optional.items() if random.random() < share}


def _mostly(random: Random, good: list[T], *wrong: T) -> T:
    """One of `good`; once in a while one of `wrong`, which no single field shows to be so."""
    return random.choice(wrong if random.random() < _WRONG else good)


def _source(random: Random) -> Document:
    return _mostly(
        random,
        [
            {"hub": {"id": "organisation/Model-7B.v1"}},
            {"hub": {"id": "model", "revision": "refs/pr/1"}},
            {"pvc": {"claimName": "models", "path": "a/b"}},
            {"pvc": {"claimName": "models"}},
            {"path": "/models/large"},
            {"uri": "s3://bucket/large"},
        ],
        {"path": "models/large"},
        {"path": "/models/large", "uri": "s3://bucket/large"},
    )


def _target(random: Random) -> Document:
    found: Document = {"source": _source(random)}
    if random.random() < 0.5:
        found |= {"servedName": random.choice(["large", "my model/1"]), "maxModelLen": random.choice([16, 8192])}
    return found


def _draft(random: Random) -> Document | None:
    method = random.choice([None, "draft-model", "draft-model", "draft-model", "eagle", "eagle3", "mtp", "ngram"])
    if method is None:
        return None
    found: Document = {"method": method, "numSpeculativeTokens": random.randint(1, 16)}
    return found if method in ("mtp", "ngram") else {**found, "source": _source(random)}


def _credentials(random: Random) -> Document:
    found: Document = {"hubToken": {"name": "hub", "key": "HF_TOKEN"}}
    return found if random.random() < 0.5 else {**found, "objectStore": {"name": "store.keys"}}


def _resources(random: Random) -> Document:
    return _mostly(
        random,
        [
            {},
            {"limits": {"nvidia.com/mig-3g.71gb": "1", "memory": "64Gi"}},
            {"requests": {"cpu": 4, "memory": "16Gi"}, "limits": {"memory": "16.5Gi", "ephemeral-storage": "1Ti"}},
            {"requests": {"cpu": "500m"}, "limits": {"cpu": "0.5", "example.com/nic": 2}},
        ],
        {"limits": {"nvidia.com/gpu": 1}},
        {"requests": {"memory": "3G"}, "limits": {"memory": "2Gi"}},
    )


def _engine(random: Random) -> Document:
    found: Document = {
        "tensorParallelSize": random.choice([1, 1, 1, 2, 8]),
        "device": random.choice(["cuda", "cpu"]),
        "args": _mostly(random, [[], ["--seed", "-1"], ["--kv-cache-dtype=fp8", "$(HOME)", ""]], ["--max_model_len"]),
        "env": _mostly(random, [{}, {"VLLM_LOGGING_LEVEL": "DEBUG", "_A1": ""}, {"HF_TOKEN": "$x"}], {"A-B": "1"}),
        "port": random.choice([1, 8000, 65534]),
    }
    if random.random() < 0.5:
        found |= {"resources": _resources(random), "startupTimeout": _mostly(random, ["10s", "90m", "24h"], "9s")}
    return found


def _planner(random: Random, most: int) -> Document:
    return {
        "policy": random.choice(["nightjar", "ada-bingreedy", "fixed", "off", "static-table"]),
        "table": _mostly(random, [[[1, 8, most], [9, 64, 0]], [[1, 1, 0]]], [[1, 8, 1], [8, 9, 0]], [[2, 3, 0]], [[1]]),
        "gammaMax": _mostly(random, [0, most], min(16, most + 1)),
        "fixedGamma": random.randint(0, most),
        "switchCost": random.choice(["auto", "12ms", "0s"]),
        "buckets": _mostly(random, [[1], [1, 2, 4], [8, 64, 65536]], [2, 2], [2, 1]),
        "planTtl": _mostly(random, ["2s", "10ms", "1h", "10000us"], "9ms"),
    }


def _memory(random: Random) -> Document:
    return {
        "elastic": random.random() < _WRONG,
        "tauLow": random.choice(["0%", "10%", "100%", 0, 2000]),
        "persistSteps": random.randint(1, 10),
        "dwell": _mostly(random, ["0s", "1m", "60m"], "61m"),
    }


def _labels(random: Random) -> dict[str, str]:
    return _mostly(random, [{}, {"zone": "a"}, {"example.com/team": "x_y.z", "b": ""}], {"a b": "c"})


def _terms(random: Random) -> list[Document]:
    operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
    fitting = {"Exists": [], "DoesNotExist": [], "Gt": ["3"], "Lt": ["80"]}.get(operator, ["a", "b"])
    values = _mostly(random, [fitting], ["x"], [])
    return [{"matchExpressions": [{"key": "example.com/kind", "operator": operator, "values": values}]}]


def _pod_term(random: Random) -> Document:
    operator, values = random.choice([("In", ["a"]), ("Exists", []), ("NotIn", ["a", "b"])])
    expression = {"key": "tier", "operator": operator, "values": values}
    selector = random.choice([{"matchLabels": _labels(random)}, {"matchExpressions": [expression]}, {}])
    return {"labelSelector": selector, "topologyKey": "topology.kubernetes.io/zone", "namespaces": ["prod"]}


def _affinity(random: Random) -> Document:
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    return random.choice(
        [
            {"nodeAffinity": {required: {"nodeSelectorTerms": _terms(random)}}},
            {"nodeAffinity": {preferred: [{"weight": 1, "preference": _terms(random)[0]}]}},
            {"podAffinity": {required: [_pod_term(random)]}},
            {"podAntiAffinity": {preferred: [{"weight": 100, "podAffinityTerm": _pod_term(random)}]}},
        ]
    )


def _scheduling(random: Random) -> Document:
    tolerations = [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        {"operator": "Exists"},
        {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
    ]
    wrong = ({"key": "a", "operator": "Exists", "value": "b"}, {"value": "b"}, {"key": "a", "tolerationSeconds": 5})
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": random.randint(1, 3)}
    return {
        "nodeSelector": _labels(random),
        "tolerations": [_mostly(random, tolerations, *wrong) for _ in range(random.randint(0, 2))],
        "affinity": _affinity(random),
        "topologySpreadConstraints": _mostly(
            random, [[], [spread], [spread, {**spread, "whenUnsatisfiable": "DoNotSchedule"}]], [spread, spread]
        ),
        **random.choice([{}, {"runtimeClassName": "nvidia", "priorityClassName": "system-node-critical"}]),
    }


def _cache(random: Random) -> Document:
    return _mostly(
        random,
        [{"claimName": "mine"}, {"size": 10**9, "storageClassName": "fast.ssd", "accessMode": "ReadWriteMany"}],
        {"size": "100Gi"},
        {"size": "0"},
        {"size": "1Ti", "claimName": "mine"},
    )


def _service(random: Random) -> Document:
    return {
        "type": random.choice(["ClusterIP", "NodePort", "LoadBalancer"]),
        "port": random.choice([1, 80, 65535]),
        "annotations": _mostly(random, [{}, {"example.com/a": "any text\n{}", "b": ""}], {"a/b/c": ""}),
    }


def _autoscaling(random: Random) -> Document:
    return {
        "minReplicas": random.randint(1, 3),
        "maxReplicas": _mostly(random, [3, 9], 1),
        "metric": _mostly(random, ["vllm_num_requests_waiting"], "nightjar_requests_waiting"),
        "target": random.randint(1, 100),
    }


_STRANGE: tuple[Any, ...] = (
    *(
        None,
        True,
        -1,
        0,
        10**6,
        2**31,
        10**19,
        1.5,
        "",
        " ",
        "a b",
        "..",
        "../a",
        "Ünï",
        "$(A)",
        "-",
        "--port",
        "a" * 300,
    ),
    *(
        "\x00",
        "1",
        "1Gi",
        "5%",
        "off",
        "*",
        "{}",
        "https://example.com",
        [],
        {},
        [None],
        [[]],
        {"a": {}},
        {"a/b/c": "d"},
    ),
)


def _damage(random: Random, found: Document) -> None:
    """Remove, replace or add one thing somewhere in `metadata.name` or `spec`."""
    places = [(found["metadata"], "name"), *_places(found["spec"])]
    parent, key = random.choice(places)
    match random.choice(["remove", "replace", "replace", "replace", "add", "twice"]):
        case "remove" if parent is not found["metadata"]:
            del parent[key]
        case "add" if isinstance(parent[key], dict):
            parent[key][random.choice(["path", "name", "Replicas", "extra", "uri", ""])] = random.choice(_STRANGE)
        case "twice" if isinstance(parent[key], list) and parent[key]:
            parent[key].append(copy.deepcopy(random.choice(parent[key])))
        case _:
            parent[key] = copy.deepcopy(random.choice(_STRANGE))


def _places(part: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below `part`."""
    keys = list(part) if isinstance(part, dict) else range(len(part)) if isinstance(part, list) else []
    return [place for key in keys for place in [(part, key), *_places(part[key])]]
