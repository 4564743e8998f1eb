"""The GPU worker with our model runner."""

from typing import Any

from vllm.v1.worker.gpu_worker import Worker

from nightjar_engine_patch.gpu.runner import NightjarGPUModelRunner


class NightjarGPUWorker(Worker):
    """Stock worker; only the class of its model runner differs, by the hook vLLM offers for it."""

    def _make_model_runner(self) -> Any:
        return NightjarGPUModelRunner(self.vllm_config, self.device)
