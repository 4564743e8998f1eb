"""Conditions in the shape Kubernetes gives them, and what of a change is worth telling."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from nightjar_api import status as api

Answer = Literal["True", "False", "Unknown"]

_LONGEST_MESSAGE = 1024


@dataclass(frozen=True)
class Condition:
    """One answer about a service; `reason` is one word for programs, `message` a sentence for people."""

    type: str
    status: Answer
    reason: str
    message: str


@dataclass(frozen=True)
class Transition:
    """A condition that changed its status."""

    condition: Condition
    before: Answer | None


def merged(
    before: Iterable[api.Condition], now: Iterable[Condition], generation: int, moment: datetime
) -> list[api.Condition]:
    """`now` as a status holds it: lastTransitionTime moves only where the status does. `moment` is in UTC."""
    known = {condition.type: condition for condition in before}
    return [_merged(known.get(condition.type), condition, generation, moment) for condition in now]


def transitions(before: Iterable[api.Condition], now: Iterable[Condition]) -> list[Transition]:
    """What changed its status; what is new counts as a change."""
    known = {condition.type: condition.status for condition in before}
    return [
        Transition(condition, known.get(condition.type))
        for condition in now
        if known.get(condition.type) != condition.status
    ]


def _merged(before: api.Condition | None, now: Condition, generation: int, moment: datetime) -> api.Condition:
    same = before is not None and before.status == now.status
    return api.Condition(
        type=now.type,
        status=now.status,
        reason=now.reason,
        message=_shortened(now.message),
        last_transition_time=before.last_transition_time if before and same else moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        observed_generation=generation,
    )


def _shortened(message: str) -> str:
    # A container's last words can be a whole log; their end says why.
    if len(message) <= _LONGEST_MESSAGE:
        return message
    half = _LONGEST_MESSAGE // 2 - 2
    return f"{message[:half]} … {message[-half:]}"
