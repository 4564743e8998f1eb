"""Defaults are promises: changing one is a decision, made here and in the CHANGELOG."""

from nightjar_api.service import NightjarService
from nightjar_operator.local.pod import Deadlines


def test_the_defaults_of_a_document():
    document = {
        "apiVersion": "nightjar.dev/v1alpha1",
        "kind": "NightjarService",
        "metadata": {"name": "story"},
        "spec": {"target": {"source": {"path": "/t"}}, "draft": {"source": {"path": "/d"}}},
    }
    spec = NightjarService.model_validate(document).spec
    assert spec.model_dump(mode="json", by_alias=True, exclude_none=True) == {
        "target": {"source": {"path": "/t"}, "dtype": "auto"},
        "draft": {"method": "draft-model", "source": {"path": "/d"}, "numSpeculativeTokens": 3},
        "credentials": {},
        "replicas": 1,
        "engine": {
            "device": "cuda",
            "tensorParallelSize": 1,
            "resources": {"requests": {}, "limits": {}},
            "port": 8000,
            "args": [],
            "env": {},
            "startupTimeout": "1h",
        },
        "sidecar": {"resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}}},
        "planner": {
            "policy": "nightjar",
            "fixedGamma": 3,
            "switchCost": "auto",
            "buckets": [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256],
            "planTtl": "2s",
        },
        "memory": {"elastic": False, "tauLow": "10%", "persistSteps": 3, "dwell": "10s"},
        "fallback": {"gamma": 0},
        "drainTimeout": "30s",
        "scheduling": {"nodeSelector": {}, "tolerations": [], "topologySpreadConstraints": []},
        "service": {"type": "ClusterIP", "port": 80, "annotations": {}},
        "rollout": {"maxSurge": 0, "maxUnavailable": 1},
        "security": {
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "supplementalGroups": [],
            "readOnlyRootFilesystem": True,
        },
        "imagePullSecrets": [],
    }


def test_the_defaults_of_a_local_pod():
    assert Deadlines() == Deadlines(engine_ready=3600, sidecar_ready=60, settings=10, drain=30, exit=15)
