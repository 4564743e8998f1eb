"""Whose an object is: names, labels, ownership."""

from dataclasses import dataclass
from typing import Any

from nightjar_api.service import API_VERSION, KIND

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Owner:
    """The NightjarService in the cluster that owns every object."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Images:
    """The operator's images, for services that name none of their own."""

    engine: str
    sidecar: str


def owned(owner: Owner, api_version: str, kind: str, name: str, component: str, **content: Any) -> Manifest:
    """An object that goes when its owner goes: no finalizer is needed, and none can get stuck."""
    reference = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": name,
        "namespace": owner.namespace,
        "labels": labels(owner, component),
        "ownerReferences": [reference],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **content}


def labels(owner: Owner, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "nightjar",
        "app.kubernetes.io/instance": owner.name,
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "nightjar-operator",
        "nightjar.dev/service": owner.name,
    }


def selector(owner: Owner) -> dict[str, str]:
    """Labels that all pods of the service have and nothing else has; a Deployment's never change."""
    return {"app.kubernetes.io/component": "engine", "nightjar.dev/service": owner.name}
