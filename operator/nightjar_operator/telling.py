"""Kubernetes Events: one for every condition that changed, none for what stayed."""

from datetime import datetime
from typing import Any

from nightjar_operator.conditions import Transition
from nightjar_operator.kinds import EVENT, MANAGER

Json = dict[str, Any]

_LONGEST_NOTE = 1024
# (type, status) of what a person on duty wants to see.
_WARNINGS = {
    ("Accepted", "False"),
    ("Ready", "False"),
    ("Adaptive", "False"),
    ("InsufficientGPU", "True"),
    ("ModelUnavailable", "True"),
}
# How a service begins says nothing, unless it begins with one of these.
_TOLD_FROM_THE_START = {("Accepted", "False"), ("InsufficientGPU", "True"), ("ModelUnavailable", "True")}


def is_worth_telling(transition: Transition) -> bool:
    condition = transition.condition
    return transition.before is not None or (condition.type, condition.status) in _TOLD_FROM_THE_START


def event(service: Json, transition: Transition, instance: str, suffix: str, moment: datetime) -> Json:
    """An Event about `service`; `suffix` makes its name unique, `instance` names the operator's pod."""
    metadata, condition = service["metadata"], transition.condition
    regarding = {
        "apiVersion": service["apiVersion"],
        "kind": service["kind"],
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
    }
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"name": f"{metadata['name']}.{suffix}", "namespace": metadata["namespace"]},
        "eventTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"nightjar.dev/{MANAGER}",
        "reportingInstance": instance,
        "action": f"{condition.type}{condition.status}",
        "reason": condition.reason,
        "regarding": regarding,
        "note": f"{condition.type} is {condition.status}: {condition.message}"[:_LONGEST_NOTE],
        "type": "Warning" if (condition.type, condition.status) in _WARNINGS else "Normal",
    }
