"""The engine core stays off the processors that its workers' threads are bound to.

vLLM binds the threads that compute to a processor each and keeps some for all else (`VLLM_CPU_OMP_THREADS_BIND`), but
nothing tells the engine core. One that spins without a rest stays where it is. Ours rests (`waiting`), and when it
wakes while clients keep the other processors busy, it may be put on a worker's, which cannot go elsewhere and waits.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path


def stay_off(pids: Iterable[int]) -> None:
    """Leave to these processes, in all threads of this one, what their threads are bound to; only Linux binds any."""
    if sys.platform != "linux":
        return
    workers = [_affinity(thread) for pid in pids for thread in _threads(pid)]
    for thread in _threads(os.getpid()):
        try:
            os.sched_setaffinity(thread, others(os.sched_getaffinity(thread), workers))
        except ProcessLookupError:
            continue


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
