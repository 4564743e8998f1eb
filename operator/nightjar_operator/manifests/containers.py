"""The two containers of the pod template."""

import math
from collections.abc import Mapping
from typing import Any

from nightjar_api import durations
from nightjar_api.containers import GPU, Resources
from nightjar_api.service import NightjarService
from nightjar_operator import pod
from nightjar_operator.manifests import places
from nightjar_operator.manifests.identity import Images, Manifest
from nightjar_operator.manifests.volumes import engine_mounts, sidecar_mounts

# For the endpoint's removal to reach every node before the engine stops accepting.
PRE_STOP_SECONDS = 10
_STARTUP_PERIOD_SECONDS = 10


def engine(service: NightjarService, container: pod.Container, images: Images) -> Manifest:
    spec = service.spec
    port = container.readiness.port
    health = {"httpGet": {"path": container.readiness.path, "port": port}, "timeoutSeconds": 5}
    budget = math.ceil(durations.seconds(spec.engine.startup_timeout) / _STARTUP_PERIOD_SECONDS)
    found = {
        "name": container.name,
        "image": spec.engine.image or images.engine,
        "command": [_literal(argument) for argument in container.command],
        "env": _environment(service, container),
        "ports": [{"name": "openai", "containerPort": port}],
        "resources": _resources(_with_gpus(service), spec.engine.resources.requests),
        "startupProbe": {**health, "periodSeconds": _STARTUP_PERIOD_SECONDS, "failureThreshold": budget},
        "readinessProbe": {**health, "periodSeconds": 5, "failureThreshold": 3},
        # vLLM answers 503 once its engine process is dead; a minute of silence is not a long step any more.
        "livenessProbe": {**health, "periodSeconds": 10, "failureThreshold": 6},
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "securityContext": _security(read_only_root=spec.security.read_only_root_filesystem),
        # The last lines of its log tell the operator, and `kubectl describe`, why it ended.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": engine_mounts(service),
    }
    if spec.credentials.object_store is not None:
        found["envFrom"] = [{"secretRef": {"name": spec.credentials.object_store.name}}]
    return found


def sidecar(service: NightjarService, container: pod.Container, images: Images) -> Manifest:
    """A native sidecar: it starts before the engine and stops after it.

    It has no readiness and no startup probe. A pod whose planner is away still serves, and must not be taken out
    of service for it.
    """
    port = container.readiness.port
    return {
        "name": container.name,
        "image": service.spec.sidecar.image or images.sidecar,
        "restartPolicy": "Always",
        "command": list(container.command),
        "ports": [{"name": "status", "containerPort": port}],
        "resources": _resources(service.spec.sidecar.resources.limits, service.spec.sidecar.resources.requests),
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": port},
            "timeoutSeconds": 5,
            "periodSeconds": 10,
            "failureThreshold": 6,
        },
        "securityContext": _security(read_only_root=True),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": sidecar_mounts(),
    }


def _environment(service: NightjarService, container: pod.Container) -> list[dict[str, Any]]:
    values = {
        # Downloads and compiled kernels go below the home folder, whatever library makes them.
        "HOME": str(places.CACHE),
        # The image knows no user of this number; torch's compiler asks for a name.
        "USER": "nightjar",
        **container.env,
    }
    found: dict[str, dict[str, Any]] = {name: {"value": _literal(value)} for name, value in values.items()}
    token = service.spec.credentials.hub_token
    if token is not None:
        found["HF_TOKEN"] = {"valueFrom": {"secretKeyRef": {"name": token.name, "key": token.key}}}
    return [{"name": name, **found[name]} for name in sorted(found)]


def _literal(text: str) -> str:
    """As it is written, as `nightjar local` takes it: Kubernetes would replace $(NAME)."""
    return text.replace("$", "$$")


def _with_gpus(service: NightjarService) -> Mapping[str, str | int]:
    spec: Resources = service.spec.engine.resources
    names_devices = any(name.startswith("nvidia.com/") for name in spec.limits)
    if service.spec.engine.device == "cpu" or names_devices:
        return spec.limits
    return {**spec.limits, GPU: service.spec.engine.tensor_parallel_size}


def _resources(limits: Mapping[str, str | int], requests: Mapping[str, str | int]) -> Manifest:
    given = {"requests": requests, "limits": limits}
    return {kind: {name: str(amounts[name]) for name in sorted(amounts)} for kind, amounts in given.items() if amounts}


def _security(*, read_only_root: bool) -> Manifest:
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": read_only_root,
    }
