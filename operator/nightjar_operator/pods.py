"""What the operator needs to know of a pod, read from the API's object."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

REFRESH_ANNOTATION = "nightjar.dev/settings-refresh"
"""Changing it makes the kubelet look at the pod, and at the ConfigMap behind its volume, at once."""


@dataclass(frozen=True)
class Trouble:
    """A container that does not run; texts as the kubelet wrote them."""

    container: str
    reason: str
    message: str


@dataclass(frozen=True)
class Pod:
    """One engine with its sidecar."""

    name: str
    uid: str
    address: str | None
    """Its IP; None before it has one."""
    status_port: int | None
    """Where its sidecar answers; None without a sidecar."""
    ready: bool
    leaving: bool
    """Told to stop: it drains, and counts for nothing any more."""
    unschedulable: str | None
    """Why no node takes it, in the scheduler's words."""
    refresh: str
    """The value of the refresh annotation."""
    troubles: tuple[Trouble, ...]


def pod(found: Json) -> Pod:
    metadata, status = found["metadata"], found.get("status", {})
    conditions = {condition["type"]: condition for condition in status.get("conditions", [])}
    scheduled = conditions.get("PodScheduled", {})
    unschedulable = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        address=status.get("podIP"),
        status_port=_status_port(found["spec"]),
        ready=conditions.get("Ready", {}).get("status") == "True",
        leaving="deletionTimestamp" in metadata or status.get("phase") in ("Succeeded", "Failed"),
        unschedulable=scheduled.get("message", "") if unschedulable else None,
        refresh=metadata.get("annotations", {}).get(REFRESH_ANNOTATION, ""),
        troubles=tuple(_troubles(status)),
    )


def _status_port(spec: Json) -> int | None:
    ports = (port for container in spec.get("initContainers", []) for port in container.get("ports", []))
    return next((port["containerPort"] for port in ports if port.get("name") == "status"), None)


def _troubles(status: Json) -> Iterator[Trouble]:
    for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
        waiting = container.get("state", {}).get("waiting", {})
        # The last words of a container that was restarted say more than that it waits to be restarted again.
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated") or {}
        if ended.get("exitCode", 0) != 0 and "running" not in container.get("state", {}):
            yield Trouble(container["name"], ended.get("reason", "Error"), ended.get("message", "").strip())
        elif waiting.get("reason") not in (None, "PodInitializing", "ContainerCreating"):
            yield Trouble(container["name"], waiting["reason"], waiting.get("message", "").strip())
