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
    """By which factor times have changed, after when, and how many of the latest rounds of each kind show it."""

    factor: float
    after_ns: int
    shown_by: Counter[Kind]


class _Witness(NamedTuple):
    """A round's time over what was known of its kind, which was seen last at `known_ns`."""

    ratio: float
    kind: Kind
    known_ns: int


class Drift:
    """Ratios of the latest rounds' times to what was known of their kind."""

    def __init__(self) -> None:
        self._latest: deque[_Witness] = deque(maxlen=_ROUNDS)

    def observe(self, ratio: float, kind: Kind, known_ns: int) -> Change | None:
        """The change, once it is sure; then watching starts over."""
        self._latest.append(_Witness(ratio, kind, known_ns))
        slower = sum(each.ratio > _CHANGED for each in self._latest)
        faster = sum(each.ratio < 1 / _CHANGED for each in self._latest)
        if max(slower, faster) < _WITNESSES:
            return None
        shown = [each for each in self._latest if (each.ratio > 1) == (slower > faster)]
        self._latest.clear()
        # The first round of each kind that shows it is compared with rounds from before it.
        before = {each.kind: each.known_ns for each in reversed(shown)}
        factor = location(each.ratio for each in shown)
        return Change(factor, max(before.values()), Counter(each.kind for each in shown))
