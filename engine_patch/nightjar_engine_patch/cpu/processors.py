"""The engine core wakes on no processor that its workers' threads are bound to.

vLLM binds the threads that compute to a processor each and keeps some for all else (`VLLM_CPU_OMP_THREADS_BIND`), but
nothing tells the engine core. One that spins without a rest stays where it is. Ours rests (`waiting`), and when it
wakes while clients keep the other processors busy, it may be put on a worker's, which cannot go elsewhere and waits.
Awake it may go anywhere: what it has to do while workers wait for it needs no processor of theirs left free.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

Sleep = Callable[[float], None]


def sleep_off(pids: Iterable[int], sleep: Sleep = time.sleep) -> Sleep:
    """A `sleep` whose end finds this thread on a processor that no thread of these processes is bound to."""
    if sys.platform != "linux":
        # Nothing else binds threads.
        return sleep
    own = os.sched_getaffinity(0)
    away = others(own, [_affinity(thread) for pid in pids for thread in _threads(pid)])
    if away == own:
        return sleep

    def away_asleep(seconds: float) -> None:
        os.sched_setaffinity(0, away)
        try:
            sleep(seconds)
        finally:
            os.sched_setaffinity(0, own)

    return away_asleep


def others(own: set[int], workers: Iterable[set[int]]) -> set[int]:
    """Of one's own processors those that no worker's thread is bound to; all, where none would be left.

    workers: the processors that each thread of the workers may run on; of those that may choose there is nothing to say
    """
    bound: set[int] = set().union(*(each for each in workers if len(each) == 1))
    return own - bound or own


def _threads(pid: int) -> list[int]:
    return [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]


def _affinity(thread: int) -> set[int]:
    try:
        return os.sched_getaffinity(thread)
    except ProcessLookupError:
        # It ended meanwhile.
        return set()
