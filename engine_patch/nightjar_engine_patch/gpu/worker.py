"""The GPU worker with our model runner."""

from typing import Any

from vllm.v1.worker.gpu_worker import Worker

from nightjar_engine_patch.gpu.runner import NightjarGPUModelRunner
from nightjar_engine_patch.gpu.warm_up import warm_up_greedy_verification


class NightjarGPUWorker(Worker):
    """Extends `_make_model_runner`, the hook vLLM offers for a runner, and `compile_or_warm_up_model`
    (vllm/v1/worker/gpu_worker.py).
    """

    def _make_model_runner(self) -> Any:
        return NightjarGPUModelRunner(self.vllm_config, self.device)

    def compile_or_warm_up_model(self) -> Any:
        # vLLM's setting for its own warm-up; without it everything is compiled when it is first used.
        if self.vllm_config.kernel_config.enable_jit_warmup:
            warm_up_greedy_verification(self.model_runner)
        return super().compile_or_warm_up_model()
