"""How the engine core and its worker wait for each other, changed in processes of ours.

What:     the name `sched_yield` in `vllm.distributed.device_communicators.shm_broadcast`
Why:      each of the two spins on it while the other works (`SpinCondition.wait`). On Linux 6.18 with two cores other
          threads, those of clients and of the control plane among them, were runnable for up to 8 s and did not run
How:      the name is bound to a function that also sleeps now and then in a long wait: who sleeps is not in the way.
          To yield never (`USE_SCHED_YIELD`) costs more: what the process's own threads have to do is then done while
          a step is prepared. So does not to spin (`busy_loop_s=0`): vLLM loses a notification now and then, and that
          step takes the 5 s of its poll
Upstream: not reported yet
Goes away when `SpinCondition` can wait without spinning.
"""

import os
import time
from collections.abc import Callable
from typing import Any

import vllm.distributed.device_communicators.shm_broadcast as stock

# What a message waits for a sleeping reader is little beside a step, and only in long waits.
SPIN_S, REST_S = 1e-3, 1e-4


class Waiting:
    """Yields, and rests when it has done nothing else for a while."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        yield_: Callable[[], None] = os.sched_yield,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._yield, self._sleep = clock, yield_, sleep
        self._began = self._last = clock()

    def __call__(self) -> None:
        now = self._clock()
        if now > self._last + REST_S:
            # Another wait, or others had the processor meanwhile.
            self._began = now
        self._last = now
        if now < self._began + SPIN_S:
            self._yield()
        else:
            self._sleep(REST_S)
            self._began = self._last = self._clock()


def rest_while_waiting(sleep: Callable[[float], None] = time.sleep) -> None:
    bound: Any = stock
    bound.sched_yield = Waiting(sleep=sleep)
