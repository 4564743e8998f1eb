"""What is put into the cluster beside the chart: plain manifests, as a person would write them."""

from pathlib import Path
from typing import Any

NAMESPACE = "nightjar"
CLAIM = "pair"
# Compiling would take longer than these tests' requests.
ENGINE_ARGS = ["--enforce-eager"]
# Each engine would bind its thread to the first core, and a busy one then keeps another from starting.
ENGINE_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}

Json = dict[str, Any]


def model_volume(folder: Path) -> list[Json]:
    """The claim of the models; its volume is `folder` of the node, which is this machine."""
    common: Json = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    volume = {"hostPath": {"path": str(folder)}, "capacity": {"storage": "1Gi"}, **common}
    request = {"volumeName": CLAIM, "resources": {"requests": {"storage": "1Gi"}}, **common}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": CLAIM, "namespace": NAMESPACE},
            "spec": request,
        },
    ]


def service(name: str, **spec: Any) -> Json:
    """Small enough that two engines share two cores."""
    defaults = {
        "target": {"source": {"pvc": {"claimName": CLAIM, "path": "target"}}, "maxModelLen": 2048},
        "draft": {"source": {"pvc": {"claimName": CLAIM, "path": "draft"}}, "numSpeculativeTokens": 3},
        "engine": {
            "device": "cpu",
            "args": ENGINE_ARGS,
            "env": ENGINE_ENV,
            "resources": {"requests": {"cpu": "500m", "memory": "2Gi"}},
        },
    }
    return {
        "apiVersion": "nightjar.dev/v1alpha1",
        "kind": "NightjarService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": defaults | spec,
    }
