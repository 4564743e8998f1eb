"""What happened lately, for people: a bounded list, where what repeats is one entry that counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

# Of each kind: γ changes often, and must not drive out what happens once a day.
_MOST_OF_A_KIND = 20
# Something that happened again so soon is the same story: γ that flaps, an engine that is tried again.
_SAME_STORY_SECONDS = 60.0

Kind = Literal["gamma", "plan", "engine", "settings", "memory"]


@dataclass(slots=True)
class Event:
    """`number` grows with every change, so that a reader tells what is new; `at` is when it last happened."""

    number: int
    kind: Kind
    message: str
    at: float
    count: int = 1


class Events:
    """Times are seconds of any one clock."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._number = 0

    def add(self, kind: Kind, message: str, now: float) -> None:
        self._number += 1
        alike = [event for event in self._events if event.kind == kind]
        recent = now - _SAME_STORY_SECONDS
        same = next((event for event in alike if event.message == message and event.at >= recent), None)
        replaced = same or (alike[0] if len(alike) == _MOST_OF_A_KIND else None)
        if replaced is not None:
            self._events.remove(replaced)
        self._events.append(Event(self._number, kind, message, now, same.count + 1 if same else 1))

    @property
    def latest_first(self) -> Sequence[Event]:
        return self._events[::-1]
