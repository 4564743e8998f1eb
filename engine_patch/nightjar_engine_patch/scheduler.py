"""A scheduler that picks the speculative length of every step from the plan, and reports what each step did."""

from collections.abc import Mapping
from pathlib import Path
from time import monotonic_ns
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler

from nightjar_api.engine.v1 import engine_pb2
from nightjar_api.engine.v1.engine_pb2 import DRAFT_RESIDENCY_ON_DEVICE
from nightjar_engine_patch import settings
from nightjar_engine_patch.choice import StepChoice
from nightjar_engine_patch.control import ControlPlane
from nightjar_engine_patch.elastic import wake
from nightjar_engine_patch.elastic.blocks import ElasticBlocks
from nightjar_engine_patch.elastic.directed_output import with_directive
from nightjar_engine_patch.elastic.directive import Directive
from nightjar_engine_patch.elastic.memory_state import MemoryState
from nightjar_engine_patch.info import engine_info, tell_of_worker
from nightjar_engine_patch.plan import CompiledPlan
from nightjar_engine_patch.reports import LateTimes, StepRecord
from nightjar_engine_patch.step_measure import StepMeasure


class NightjarScheduler(Scheduler):
    """Extends `schedule`, `_update_after_schedule`, `update_from_output`, `has_requests` and `shutdown` by calls
    before or after vLLM's own (vllm/v1/core/sched/scheduler.py).
    """

    def __init__(self, vllm_config: Any, kv_cache_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, kv_cache_config, *args, **kwargs)
        # vLLM fills a request that joins with one token up to the longest length, with drafts nobody proposed,
        # unless it looks lengths up itself. What it finds here is replaced in `_update_after_schedule`.
        self.dynamic_sd_lookup = [self.num_spec_tokens] * (self.max_num_running_reqs + 1)
        configured = settings.parse(vllm_config.additional_config)
        self._fallback_gamma = configured.fallback_gamma
        info: engine_pb2.EngineInfo = engine_info(vllm_config, kv_cache_config, configured)
        self.memory: MemoryState | None = None
        if configured.elastic:
            wake.install()
            self.memory = MemoryState(ElasticBlocks(self.kv_cache_manager), monotonic_ns)
        self._control = ControlPlane(Path(configured.socket), info, configured.report_queue, self.memory)
        self._reports = LateTimes(self._control.reports.append)
        self._step = 0
        self._choice = StepChoice(0)
        self._plan: CompiledPlan | None = None
        # Of the steps whose output has not come yet, by the identity of what was scheduled.
        self._in_flight: dict[int, StepChoice] = {}
        self._last_output_ns = 0
        # The last step that drafted, and its length: what the next step with drafts verifies.
        self._drafted: tuple[int, int] = (0, 0)
        # Of that step: who had drafts of the draft's own; None if all had.
        self._proposed: frozenset[str] | None = None
        # Requests that found no place in the last step.
        self._left_waiting = 0

    def has_requests(self) -> bool:
        """Whether a step is needed: also for memory that changes hands."""
        return super().has_requests() or (self.memory is not None and self.memory.is_busy)

    def schedule(self, throttle_prefills: bool = False) -> Any:  # noqa: FBT001, FBT002 - vLLM's signature
        started = monotonic_ns()
        choice = self._choice = StepChoice(started)
        self._plan = self._control.holder.in_force(started)
        # Before any block is handed out: what is scheduled now carries the ids after the change.
        directive = self._decide(choice)
        # No block is held for drafts that no step can have.
        self.num_lookahead_tokens = self._most()
        choice.own_ns = monotonic_ns() - started - choice.elastic_ns
        output = super().schedule(throttle_prefills)
        if directive is not None:
            output = with_directive(output, directive)
        self._in_flight[id(output)] = choice
        return output

    def _decide(self, choice: StepChoice) -> Directive | None:
        """What the step has the memory do."""
        if self.memory is None or not self.memory.has_to_decide:
            return None
        started = monotonic_ns()
        waiting = min(self._left_waiting, len(self.waiting))
        directive = self.memory.decide(waiting, self._speculation())
        choice.elastic_ns = monotonic_ns() - started
        return directive

    def _update_after_schedule(self, scheduler_output: Any) -> None:
        """The step's requests are known and nothing has read the length yet."""
        started = monotonic_ns()
        choice = self._choice
        choice.decode_batch = self._count_decodes(scheduler_output)
        choice.recomputed_tokens = self._count_recomputed(scheduler_output)
        choice.gamma = self._choose_gamma(choice)
        scheduler_output.num_spec_tokens_to_schedule = choice.gamma
        self._drop_late_drafts(scheduler_output.num_scheduled_tokens)
        choice.own_ns += monotonic_ns() - started
        super()._update_after_schedule(scheduler_output)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        choice = self._in_flight.pop(id(scheduler_output))
        if self.memory is not None and self.memory.is_busy:
            # A step without tokens has a measure only if it had a directive.
            measure = getattr(model_runner_output, "measure", None)
            if measure is not None and measure.obeyed is not None:
                started = monotonic_ns()
                self.memory.obeyed(measure.obeyed)
                choice.elastic_ns += monotonic_ns() - started
        if scheduler_output.total_num_scheduled_tokens == 0:
            return super().update_from_output(scheduler_output, model_runner_output)
        started = monotonic_ns()
        drafts = scheduler_output.scheduled_spec_decode_tokens
        # Before vLLM cuts tokens off behind a request's end, which would look like rejections.
        lengths = list(map(len, model_runner_output.sampled_token_ids)) if drafts else []
        requests = self.requests
        ended = [request for request in scheduler_output.num_scheduled_tokens if request not in requests]
        choice.own_ns += monotonic_ns() - started
        outputs = super().update_from_output(scheduler_output, model_runner_output)
        if ended:
            # Their tokens are given to nobody.
            row_of, emitted = model_runner_output.req_id_to_index, list(model_runner_output.sampled_token_ids)
            for request in ended:
                emitted[row_of[request]] = []
            model_runner_output.sampled_token_ids = emitted
        self._report(choice, scheduler_output, model_runner_output, lengths)
        return outputs

    def shutdown(self) -> None:
        self._control.close()
        super().shutdown()

    def _speculation(self) -> str:
        """What plans a positive length, for people; empty if nothing does."""
        plan = self._plan
        if plan is None:
            return f"no plan and a fallback length of {self._fallback_gamma}" if self._fallback_gamma else ""
        return f"plan {plan.version}, which has γ up to {plan.longest}" if plan.longest else ""

    def _draft_is_here(self) -> bool:
        """A plan may come that does not know that it left."""
        return self.memory is None or self.memory.draft_is_here

    def _most(self) -> int:
        """The longest length that the step can get, whatever its batch turns out to be."""
        if not self._draft_is_here():
            return 0
        return self._fallback_gamma if self._plan is None else self._plan.most

    def _choose_gamma(self, choice: StepChoice) -> int:
        if choice.decode_batch == 0:
            # Nobody proposes, and the plan counts visits.
            return 0
        gamma = self._fallback_gamma
        if self._plan is not None:
            choice.plan_version = self._plan.version
            gamma = self._plan.next_gamma(choice.decode_batch)
        return gamma if self._draft_is_here() else 0

    def _count_decodes(self, scheduler_output: Any) -> int:
        """Requests that emit tokens in this step: all but those whose prefill goes on after it."""
        scheduled = scheduler_output.num_scheduled_tokens
        if not self._inflight_prefills:
            return len(scheduled)
        requests = self.requests
        return sum(
            requests[name].num_computed_tokens + tokens >= requests[name].num_tokens
            for name, tokens in scheduled.items()
        )

    def _count_recomputed(self, scheduler_output: Any) -> int:
        """Prompt tokens of this step that are read again, for their requests had been sent back."""
        scheduled, requests = scheduler_output.num_scheduled_tokens, self.requests
        # A request that goes on is a new one to the newer model runner.
        reading = {request.req_id for request in scheduler_output.scheduled_new_reqs}
        reading.update(scheduler_output.scheduled_cached_reqs.resumed_req_ids)
        reading.update(request.request_id for request in self._inflight_prefills)
        recomputed = 0
        for name in reading:
            request, tokens = requests[name], scheduled.get(name, 0)
            if request.num_preemptions and tokens:
                # The last token of a prompt emits, so it counts as decoded.
                recomputed += tokens - (request.num_computed_tokens + tokens >= request.num_tokens)
        return recomputed

    def _drop_late_drafts(self, scheduled: Mapping[str, int]) -> None:
        """A request that had no room in this step would have its drafts credited to the wrong step later."""
        if len(scheduled) == len(self.running):
            return
        for request in self.running:
            if request.request_id not in scheduled:
                request.spec_token_ids = []

    def _report(self, choice: StepChoice, scheduler_output: Any, model_runner_output: Any, lengths: list[int]) -> None:
        now = monotonic_ns()
        self._step += 1
        measure: StepMeasure = model_runner_output.measure
        if self._step == 1:
            tell_of_worker(self._control.info, measure)
        self._left_waiting = len(self.waiting)
        pool = self.kv_cache_manager.block_pool
        record = StepRecord(
            step=self._step,
            time_ns=now,
            # A step that was prepared while the one before ran began with that one's end.
            step_ns=now - max(choice.started_ns, self._last_output_ns),
            decode_batch=choice.decode_batch,
            scheduled_tokens=scheduler_output.total_num_scheduled_tokens,
            recomputed_tokens=choice.recomputed_tokens,
            drafts=scheduler_output.scheduled_spec_decode_tokens,
            proposed=self._proposed,
            row_of=model_runner_output.req_id_to_index,
            lengths=lengths,
            emitted=model_runner_output.sampled_token_ids,
            drafted=self._drafted,
            gamma=choice.gamma,
            measure=measure,
            free_blocks=pool.get_num_free_blocks(),
            total_blocks=pool.num_gpu_blocks,
            running=len(self.running),
            waiting=self._left_waiting,
            plan_version=choice.plan_version,
            elastic_ns=choice.elastic_ns + measure.elastic_ns,
            residency=DRAFT_RESIDENCY_ON_DEVICE if self.memory is None else self.memory.residency,
        )
        self._drafted = (self._step, choice.gamma)
        self._proposed = measure.proposed
        # The report is part of the step: what it takes on a busy machine may be longer than the rest of it.
        spent_ns = monotonic_ns() - now
        record.step_ns += spent_ns
        record.overhead_ns = choice.own_ns + measure.bookkeeping_ns + spent_ns
        self._last_output_ns = now + spent_ns
        self._reports.append(record, is_last=not (self.running or self.waiting))
