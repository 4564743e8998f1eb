"""The CPU worker with our model runner."""

from typing import Any

import vllm.v1.worker.cpu_worker as stock

from nightjar_engine_patch.cpu import sampling, waiting
from nightjar_engine_patch.cpu.runner import NightjarCPUModelRunner


class NightjarCPUWorker(stock.CPUWorker):
    """Stock worker; only the class of its model runner differs.

    What:     the name `CPUModelRunner` in `vllm.v1.worker.cpu_worker`, in worker processes of this class
    Why:      `CPUWorker.init_device` constructs the runner itself and offers no hook
    How:      the name is bound to our subclass before `init_device` looks it up
    Upstream: none asked for yet
    Goes away when the runner class can be chosen.
    """

    def init_device(self) -> None:
        bound: Any = stock
        bound.CPUModelRunner = NightjarCPUModelRunner
        sampling.repair()
        waiting.rest_while_waiting()
        super().init_device()
