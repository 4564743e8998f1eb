"""Changes of hands, asked for by a thread while the engine serves in another."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import grpc

from nightjar_benchmarks.gpu_engine.control import Control

_RETRY_SECONDS = 0.002


@dataclass(frozen=True)
class Change:
    """One change, from the call to the answer (seconds of `time.monotonic`)."""

    kind: str
    begun: float
    ended: float
    blocks: int
    moved_blocks: int
    moved_bytes: int


class Changes:
    """What was asked of one engine, and how it ended."""

    def __init__(self, control: Control, now: Callable[[], float] = time.monotonic) -> None:
        self._control = control
        self._now = now
        self.done: list[Change] = []
        self.refusals = 0
        self.error: BaseException | None = None

    def expand(self) -> Change:
        return self._ask("expand", self._control.expand)

    def squeeze(self) -> Change:
        """Asked again as long as requests forbid it."""
        while True:
            try:
                return self._ask("squeeze", self._control.squeeze)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
                    raise
                self.refusals += 1
                time.sleep(_RETRY_SECONDS)

    def beside(self, story: Callable[["Changes"], None], serve: Callable[[Callable[[], bool]], Any]) -> Any:
        """What `serve` gives, which is told on asking whether `story` has ended; raises what `story` raised."""
        thread = threading.Thread(target=self._run, args=(story,), daemon=True)
        thread.start()
        found = serve(lambda: not thread.is_alive())
        thread.join()
        if self.error is not None:
            raise self.error
        return found

    def rows(self) -> list[dict[str, Any]]:
        return [asdict(change) for change in self.done]

    def _run(self, story: Callable[["Changes"], None]) -> None:
        try:
            story(self)
        except BaseException as error:  # noqa: BLE001 - whatever it is, `beside` raises it
            self.error = error

    def _ask(self, kind: str, call: Callable[[], Any]) -> Change:
        begun = self._now()
        answer = call()
        change = Change(kind, begun, self._now(), answer.blocks, answer.moved_blocks, answer.moved_bytes)
        self.done.append(change)
        return change
