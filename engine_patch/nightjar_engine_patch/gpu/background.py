"""Work beside the engine's steps: a thread of its own, with a stream of its own."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

Found = TypeVar("Found")


class Background(Generic[Found]):
    """One piece of work at a time. Nothing but `close` waits."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nightjar-memory")
        self._running: Future[Found] | None = None

    def begin(self, work: Callable[[], Found]) -> None:
        """Do `work` once the device has passed everything that is on the current stream by now."""
        passed = _mark()
        self._running = self._thread.submit(self._run, passed, work)

    def take(self) -> Found | None:
        """What the work gave, once, when it is done on the device too; None until then. Raises what the work raised."""
        running = self._running
        if running is None or not running.done():
            return None
        self._running = None
        return running.result()

    def close(self) -> None:
        self._thread.shutdown()

    def _run(self, passed: torch.cuda.Event, work: Callable[[], Found]) -> Found:
        passed.synchronize()
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            found = work()
            _mark().synchronize()
        return found


def _mark() -> torch.cuda.Event:
    """An event on the current stream; who waits for it sleeps, and leaves the processor to others."""
    event = torch.cuda.Event(blocking=True)
    event.record()
    return event
