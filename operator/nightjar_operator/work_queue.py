"""A backlog that can be waited on, by the workers of one event loop."""

import asyncio
import random
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from nightjar_operator.backlog import Backlog

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """Not for several threads: others hand their keys to the loop."""

    def __init__(self, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self.backlog = Backlog[K](rng)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Ask for work on `key` in `delay` seconds; once, however often it is asked for."""
        self.backlog.add(key, self._clock() + delay)
        self._changed.set()

    async def take(self) -> K:
        """Wait for a key that is due; give it back with `done` or `failed`."""
        while True:
            key = self.backlog.take(self._clock())
            if key is not None:
                return key
            await self._until_due()

    def done(self, key: K) -> None:
        self.backlog.done(key)
        self._changed.set()

    def failed(self, key: K) -> float:
        """`key` comes back later; gives the seconds until then."""
        delay = self.backlog.failed(key, self._clock())
        self._changed.set()
        return delay

    async def _until_due(self) -> None:
        due = self.backlog.next_due()
        self._changed.clear()
        try:
            async with asyncio.timeout(None if due is None else max(0.0, due - self._clock())):
                await self._changed.wait()
        except TimeoutError:
            return
