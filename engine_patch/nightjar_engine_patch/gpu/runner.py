"""vLLM's GPU model runner (V2) with our speculator, and times measured on the device."""

from time import monotonic_ns
from typing import Any

import torch
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

from nightjar_engine_patch import settings
from nightjar_engine_patch.gpu.measured_async import MeasuredAsyncOutput
from nightjar_engine_patch.gpu.speculator import GraphedSpeculator
from nightjar_engine_patch.gpu.step_timer import StepTimer
from nightjar_engine_patch.step_measure import StepMeasure


class NightjarGPUModelRunner(GPUModelRunner):
    """γ = 0 launches no part of the draft; γ > 0 drafts for every request that is up to date.

    Replaces the attribute `speculator`, and extends `add_requests`, `execute_model`, `sample` and `sample_tokens`
    (vllm/v1/worker/gpu/model_runner.py).
    """

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        self._timer = StepTimer()
        self._following_ns = 0
        configured = settings.parse(vllm_config.additional_config)
        self.speculator = GraphedSpeculator(vllm_config, device, self.req_states, configured, self._timer)

    def add_requests(self, scheduler_output: Any) -> None:
        super().add_requests(scheduler_output)
        started = monotonic_ns()
        read = self.speculator.blocks.follow(scheduler_output)
        for request in scheduler_output.scheduled_new_reqs:
            slot = self.req_states.req_id_to_index[request.req_id]
            self.speculator.unread.start(slot, request.num_computed_tokens - read[request.req_id])
        self._following_ns = monotonic_ns() - started

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        self._timer.begin()
        return super().execute_model(scheduler_output, *args, **kwargs)

    def sample(self, *args: Any, **kwargs: Any) -> Any:
        output = super().sample(*args, **kwargs)
        # Before the tokens' way to the host begins: who has them may read this mark.
        self._timer.sampled()
        return output

    def sample_tokens(self, grammar_output: Any) -> Any:
        output = super().sample_tokens(grammar_output)
        if output is None:
            return None
        speculator = self.speculator
        measure = StepMeasure(
            speculator.weight_bytes,
            catch_up_tokens=speculator.read_tokens,
            stale_tokens=speculator.stale_tokens,
            bookkeeping_ns=speculator.bookkeeping_ns + self._following_ns,
            proposed=speculator.proposed,
        )
        return MeasuredAsyncOutput(output, measure, self._timer.end())
