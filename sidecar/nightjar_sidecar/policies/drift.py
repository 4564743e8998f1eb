"""Whether all rounds have become slower or faster: one that is unlike its like is an accident, several are news."""

from collections import Counter, deque
from typing import NamedTuple

from nightjar_sidecar.policies.robust import location
from nightjar_sidecar.space import Bucket

_ROUNDS = 8
_WITNESSES = 6
# Less is what longer contexts do, and what the cells' locations follow by themselves.
_CHANGED = 1.3

Kind = tuple[Bucket, int]


class Change(NamedTuple):
    """By which factor times have changed, and how many of the latest rounds of each kind show it."""

    factor: float
    shown_by: Counter[Kind]


class Drift:
    """Ratios of the latest rounds' times to what was known of their kind."""

    def __init__(self) -> None:
        self._latest: deque[tuple[float, Kind]] = deque(maxlen=_ROUNDS)

    def observe(self, ratio: float, kind: Kind) -> Change | None:
        """The change, once it is sure; then watching starts over."""
        self._latest.append((ratio, kind))
        slower = sum(each > _CHANGED for each, _ in self._latest)
        faster = sum(each < 1 / _CHANGED for each, _ in self._latest)
        if max(slower, faster) < _WITNESSES:
            return None
        shown = [(each, kind) for each, kind in self._latest if (each > 1) == (slower > faster)]
        self._latest.clear()
        return Change(location(each for each, _ in shown), Counter(kind for _, kind in shown))
