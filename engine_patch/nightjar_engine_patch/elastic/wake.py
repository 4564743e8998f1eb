"""Wakes an engine core that waits for requests, so that memory changes hands in an idle engine too.

What:     `vllm.v1.engine.core.EngineCoreProc.run_busy_loop`, in engine core processes with elastic memory
Why:      an idle engine core blocks on its input queue, and the scheduler, which takes the calls, knows neither
How:      the scheduler is given a function that puts vLLM's own WAKEUP into that queue; then the original runs
Upstream: none asked for yet
Goes away when a scheduler can ask for a step.
"""

from functools import wraps
from typing import Any

_MARK = "_nightjar_original"


def install() -> None:
    """Replace `EngineCoreProc.run_busy_loop`; safe to call again."""
    from vllm.v1.engine import EngineCoreRequestType
    from vllm.v1.engine.core import EngineCoreProc

    replaced: Any = EngineCoreProc
    original = replaced.run_busy_loop
    if hasattr(original, _MARK):
        return

    @wraps(original)
    def run_busy_loop(self: Any) -> Any:
        self.scheduler.memory.wake = lambda: self.input_queue.put_nowait((EngineCoreRequestType.WAKEUP, None))
        return original(self)

    setattr(run_busy_loop, _MARK, original)
    replaced.run_busy_loop = run_busy_loop
