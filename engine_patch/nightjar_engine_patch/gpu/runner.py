"""vLLM's GPU model runner (V2) with our speculator, and times measured on the device."""

from copy import copy
from time import monotonic_ns
from typing import Any

import torch
from vllm.v1.worker.gpu.model_runner import GPUModelRunner

from nightjar_engine_patch import settings
from nightjar_engine_patch.elastic.directed_output import DirectedOutput
from nightjar_engine_patch.elastic.directive import Directive, ExpandDirective, Obeyed
from nightjar_engine_patch.gpu.elastic_allocation import allocating_by
from nightjar_engine_patch.gpu.elastic_memory import ElasticMemory
from nightjar_engine_patch.gpu.elastic_start import ElasticStart
from nightjar_engine_patch.gpu.measured_async import MeasuredAsyncOutput
from nightjar_engine_patch.gpu.speculator import GraphedSpeculator
from nightjar_engine_patch.gpu.step_timer import StepTimer
from nightjar_engine_patch.measured_output import with_measure
from nightjar_engine_patch.step_measure import StepMeasure


class NightjarGPUModelRunner(GPUModelRunner):
    """γ = 0 launches no part of the draft; γ > 0 drafts for every request that is up to date.

    Replaces the attribute `speculator`, and extends `initialize_kv_cache`, `capture_model`, `add_requests`,
    `execute_model`, `sample`, `sample_tokens` and `shutdown` (vllm/v1/worker/gpu/model_runner.py).
    """

    # Of an engine with elastic memory, once its KV cache is there.
    memory: ElasticMemory | None = None

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        self._timer = StepTimer()
        self._following_ns = 0
        configured = settings.parse(vllm_config.additional_config)
        self._is_elastic = configured.elastic
        # What steps without tokens, which are not reported, leave to be told.
        self._elastic_ns = 0
        self.speculator = GraphedSpeculator(vllm_config, device, self.req_states, configured, self._timer)

    def initialize_kv_cache(self, kv_cache_config: Any, is_profiling: bool = False, *args: Any, **kwargs: Any) -> None:  # noqa: FBT001, FBT002 - vLLM's signature
        if is_profiling or not self._is_elastic:
            super().initialize_kv_cache(kv_cache_config, is_profiling, *args, **kwargs)
            return
        start = ElasticStart(self.speculator)
        with allocating_by(start.allocate):
            super().initialize_kv_cache(kv_cache_config, is_profiling, *args, **kwargs)
        self.memory = start.finish(self.block_tables)

    def capture_model(self, *, profile_only: bool = False) -> int:
        self.speculator.is_estimate = profile_only
        captured: int = super().capture_model(profile_only=profile_only)
        return captured

    def add_requests(self, scheduler_output: Any) -> None:
        super().add_requests(scheduler_output)
        started = monotonic_ns()
        read = self.speculator.blocks.follow(scheduler_output)
        for request in scheduler_output.scheduled_new_reqs:
            slot = self.req_states.req_id_to_index[request.req_id]
            self.speculator.unread.start(slot, request.num_computed_tokens - read[request.req_id])
        self._following_ns = monotonic_ns() - started

    def execute_model(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(scheduler_output, DirectedOutput):
            # Before any id of this step is looked at.
            self._obey(scheduler_output.directive)
        if scheduler_output.total_num_scheduled_tokens:
            self._timer.begin()
            return super().execute_model(scheduler_output, *args, **kwargs)
        output = super().execute_model(scheduler_output, *args, **kwargs)
        obeyed = self._take_obeyed()
        if obeyed is None:
            return output
        return with_measure(copy(output), StepMeasure(self.speculator.weight_bytes, obeyed=obeyed), None)

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
            graphs=speculator.captured,
            catch_up_tokens=speculator.read_tokens,
            stale_tokens=speculator.stale_tokens,
            bookkeeping_ns=speculator.bookkeeping_ns + self._following_ns,
            proposed=speculator.proposed,
            elastic_ns=self._elastic_ns,
            obeyed=self._take_obeyed(),
            passes=speculator.passes,
        )
        self._elastic_ns = 0
        return MeasuredAsyncOutput(output, measure, self._timer.end())

    def shutdown(self) -> None:
        super().shutdown()
        if self.memory is not None:
            self.memory.close()
            self.memory = None

    def _obey(self, directive: Directive) -> None:
        if self.memory is None:
            raise RuntimeError("a directive for an engine without elastic memory")
        started = monotonic_ns()
        self.speculator.blocks.forget()
        self.memory.obey(directive)
        if isinstance(directive, ExpandDirective):
            self.speculator.unread.forget_all()
        self._elastic_ns += monotonic_ns() - started

    def _take_obeyed(self) -> Obeyed | None:
        """The end of a directive, once."""
        return None if self.memory is None else self.memory.take()
