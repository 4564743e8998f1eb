"""What is put into the cluster: plain manifests, as a person would write them."""

from pathlib import Path
from typing import Any

import yaml

from nightjar_benchmarks.images.parts import Images

NAMESPACE = "nightjar"
OPERATOR = "nightjar-operator"
CLAIM = "pair"
# Compiling would take longer than these tests' requests.
ENGINE_ARGS = ["--enforce-eager"]
# Each engine would bind its thread to the first core, and a busy one then keeps another from starting.
ENGINE_ENV = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}

Json = dict[str, Any]


def operator(root: Path, images: Images) -> list[Json]:
    """The operator as a Deployment with a service account that may do what rbac.yaml says, and nothing else."""
    rules = yaml.safe_load((root / "operator" / "nightjar_operator" / "rbac.yaml").read_text(encoding="utf-8"))
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        _named("v1", "ServiceAccount"),
        _named("rbac.authorization.k8s.io/v1", "ClusterRole", rules=rules["rules"]),
        _binding("ClusterRole"),
        _named("rbac.authorization.k8s.io/v1", "Role", rules=rules["lease"]),
        _binding("Role"),
        _deployment(images),
    ]


def _deployment(images: Images) -> Json:
    labels = {"app": OPERATOR}
    container = {
        "name": "operator",
        "image": images.operator,
        "args": [
            *("--engine-image", images.engine),
            *("--sidecar-image", images.sidecar),
            *("--lease", f"{NAMESPACE}/{OPERATOR}"),
        ],
        "ports": [{"name": "http", "containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "timeoutSeconds": 5},
        # On a busy node a second is no time.
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "timeoutSeconds": 5, "failureThreshold": 6},
        # Without a request engines would leave it no time to renew its lease.
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "serviceAccountName": OPERATOR,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    return _named("apps/v1", "Deployment", spec={"selector": {"matchLabels": labels}, "template": template})


def _binding(role: str) -> Json:
    return _named(
        "rbac.authorization.k8s.io/v1",
        f"{role}Binding",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": OPERATOR},
        subjects=[{"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}],
    )


def _named(version: str, kind: str, **content: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": OPERATOR, "namespace": NAMESPACE}, **content}


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
