"""Where a step's time goes on the device, by events that nobody waits for."""

from dataclasses import dataclass, field

import torch


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


@dataclass
class StepEvents:
    """Marks of one step, in the order in which the device passes them; it keeps them until all are read."""

    begun: torch.cuda.Event = field(default_factory=_event)
    sampled: torch.cuda.Event = field(default_factory=_event)
    caught_up: torch.cuda.Event = field(default_factory=_event)
    drafted: torch.cuda.Event = field(default_factory=_event)
    has_caught_up: bool = False
    has_drafted: bool = False

    def forward_ns(self) -> int:
        return _between(self.begun, self.sampled)

    def catch_up_ns(self) -> int:
        return _between(self.sampled, self.caught_up) if self.has_caught_up else 0

    def draft_ns(self) -> int:
        start = self.caught_up if self.has_caught_up else self.sampled
        return _between(start, self.drafted) if self.has_drafted else 0


@dataclass(frozen=True)
class Step:
    """A step's own marks, and those of the step before, all of which the device has passed when this one sampled."""

    own: StepEvents
    before: StepEvents | None


class StepTimer:
    """Marks the current step on the current stream. A few steps are in flight at once, so marks are used in turn."""

    _KEPT = 8

    def __init__(self) -> None:
        self._ring: list[StepEvents] = []
        self._next = 0
        self._now = StepEvents()
        self._before: StepEvents | None = None

    def begin(self) -> None:
        if len(self._ring) < self._KEPT:
            self._ring.append(StepEvents())
        now = self._ring[self._next % self._KEPT]
        self._next += 1
        now.has_caught_up = now.has_drafted = False
        now.begun.record()
        self._now = now

    def sampled(self) -> None:
        self._now.sampled.record()

    def caught_up(self) -> None:
        self._now.has_caught_up = True
        self._now.caught_up.record()

    def drafted(self) -> None:
        self._now.has_drafted = True
        self._now.drafted.record()

    def end(self) -> Step:
        step = Step(self._now, self._before)
        self._before = self._now
        return step


def _between(start: torch.cuda.Event, end: torch.cuda.Event) -> int:
    return round(start.elapsed_time(end) * 1e6)
