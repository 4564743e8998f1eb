"""Volumes of the pod, and where the containers mount them."""

from typing import Any

from nightjar_api.service import NightjarService
from nightjar_api.sources import ClaimSource
from nightjar_operator import pod
from nightjar_operator.manifests import places
from nightjar_operator.manifests.identity import Owner

# tensor-parallel workers and NCCL share memory; it counts against the container's memory when it is used.
_SHM_LIMIT = "8Gi"


def volumes(service: NightjarService, owner: Owner, built: pod.Pod) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _SHM_LIMIT}},
        {"name": "cache", **_cache(service, owner)},
        {"name": "socket", "emptyDir": {}},
    ]
    if built.settings is not None:
        found.append({"name": "settings", "configMap": {"name": places.settings_name(owner.name)}})
    claims = {name: {"claimName": claim.claim_name, "readOnly": True} for name, claim in _model_claims(service).items()}
    return found + [{"name": name, "persistentVolumeClaim": claim} for name, claim in claims.items()]


def engine_mounts(service: NightjarService) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": str(places.TMP)},
        {"name": "shm", "mountPath": str(places.SHM)},
        {"name": "cache", "mountPath": str(places.CACHE)},
        {"name": "socket", "mountPath": str(places.SOCKET_FOLDER)},
    ]
    claims = _model_claims(service)
    return found + [{"name": name, "mountPath": str(pod.MODELS / name), "readOnly": True} for name in claims]


def sidecar_mounts() -> list[dict[str, Any]]:
    return [
        {"name": "socket", "mountPath": str(places.SOCKET_FOLDER)},
        # The folder, not the file: a file mounted alone never sees a new ConfigMap.
        {"name": "settings", "mountPath": str(places.SETTINGS_FOLDER), "readOnly": True},
    ]


def _cache(service: NightjarService, owner: Owner) -> dict[str, Any]:
    cache = service.spec.cache
    if cache is None:
        return {"emptyDir": {}}
    return {"persistentVolumeClaim": {"claimName": cache.claim_name or places.claim_name(owner.name)}}


def _model_claims(service: NightjarService) -> dict[str, ClaimSource]:
    sources = {"target": service.spec.target.source}
    if service.spec.draft is not None and service.spec.draft.source is not None:
        sources["draft"] = service.spec.draft.source
    return {name: source.pvc for name, source in sources.items() if source.pvc is not None}
