"""Keys that wait to be worked on: each at most once, each by one worker at a time, failures later and later.

Pure bookkeeping with the time as an argument; `work_queue.py` adds the waiting.
"""

import heapq
import random
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 60.0
_MOST_DOUBLINGS = 10


def retry_delay(failures: int, rng: random.Random) -> float:
    """Seconds to wait after the `failures`-th failure in a row, from 1.

    Doubling up to a minute; a random half of it keeps many keys that failed together from coming back together.
    """
    longest = min(_FIRST_DELAY_SECONDS * 2 ** min(failures - 1, _MOST_DOUBLINGS), _LONGEST_DELAY_SECONDS)
    return float(longest * rng.uniform(0.5, 1.0))


class Backlog(Generic[K]):
    """Times are seconds of any one clock that never goes back."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._working: set[K] = set()
        self._failures: dict[K, int] = {}

    def __len__(self) -> int:
        """Keys that wait, those that are worked on aside."""
        return len(self._due)

    @property
    def failing(self) -> int:
        """Keys whose latest attempt failed."""
        return len(self._failures)

    def add(self, key: K, due: float) -> None:
        """Ask for work on `key` at `due`; the earliest of several times counts."""
        known = self._due.get(key)
        if known is not None and known <= due:
            return
        self._due[key] = due
        if key not in self._working:
            self._push(key, due)

    def take(self, now: float) -> K | None:
        """A key that is due, to be given back with `done` or `failed`; None if there is none."""
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            # An entry is out of date once its key was taken or asked for earlier.
            if key in self._working or self._due.get(key) != due:
                continue
            del self._due[key]
            self._working.add(key)
            return key
        return None

    def next_due(self) -> float | None:
        """When `take` may give a key; None while nothing waits."""
        return self._heap[0][0] if self._heap else None

    def done(self, key: K) -> None:
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: K, now: float) -> float:
        """`key` comes back later; gives the seconds until then."""
        self._failures[key] = self._failures.get(key, 0) + 1
        delay = retry_delay(self._failures[key], self._rng)
        # What was asked for meanwhile does not cut the wait short: a failing key that changes all the time
        # would be tried all the time.
        self._due[key] = now + delay
        self._release(key)
        return delay

    def _release(self, key: K) -> None:
        self._working.discard(key)
        due = self._due.get(key)
        if due is not None:
            self._push(key, due)

    def _push(self, key: K, due: float) -> None:
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, key))
