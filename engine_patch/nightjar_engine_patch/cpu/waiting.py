"""How the engine core and its worker wait for each other, changed in processes of ours.

What:     the flag `USE_SCHED_YIELD` in `vllm.distributed.utils`
Why:      each of the two spins on `sched_yield` while the other works (`SpinCondition.wait`,
          vllm/distributed/device_communicators/shm_broadcast.py). On Linux 6.18 with two cores other threads, those of
          clients and of the control plane among them, were then runnable for up to 8 s and did not run
How:      `sched_yield` reads the flag at each call; without it, it sleeps for no time, which leaves the order to the
          kernel. Not to spin at all (`busy_loop_s=0`) is no way out: vLLM loses a notification now and then, and that
          step takes the 5 s of its poll
Upstream: not reported yet
Goes away when `SpinCondition` can wait without spinning.
"""

from typing import Any

import vllm.distributed.utils as stock


def stop_yielding() -> None:
    bound: Any = stock
    bound.USE_SCHED_YIELD = False
