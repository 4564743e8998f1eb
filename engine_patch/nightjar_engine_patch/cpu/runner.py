"""vLLM's CPU model runner (V1) with a draft that obeys the step's speculative length."""

from copy import copy
from time import monotonic_ns
from typing import Any

import numpy as np
import torch
from vllm.v1.spec_decode.metadata import SpecDecodeMetadata
from vllm.v1.worker.cpu_model_runner import CPUModelRunner

from nightjar_engine_patch import settings
from nightjar_engine_patch.cpu.draft import DraftPass
from nightjar_engine_patch.cpu.elastic_allocation import allocating_in
from nightjar_engine_patch.cpu.elastic_layers import make_cache
from nightjar_engine_patch.cpu.elastic_remap import remap
from nightjar_engine_patch.draft_blocks import DraftBlocks
from nightjar_engine_patch.elastic.cache import ElasticCache
from nightjar_engine_patch.elastic.directed_output import DirectedOutput
from nightjar_engine_patch.elastic.directive import Directive, ExpandDirective, Obeyed
from nightjar_engine_patch.freshness import DraftFreshness, Feed, Indices, Ints, Staleness, append_sampled, plan_feeds
from nightjar_engine_patch.measured_output import with_measure
from nightjar_engine_patch.step_measure import StepMeasure
from nightjar_kernels.moves import block_moves

CATCH_UP_TOKENS = 512
_NO_INDICES = torch.empty(0, dtype=torch.int32)


class NightjarCPUModelRunner(CPUModelRunner):
    """γ = 0 runs no part of the draft; γ > 0 drafts for every request that is up to date.

    Replaces `propose_draft_token_ids` and `_input_fits_in_drafter`, and extends `initialize_kv_cache_tensors`,
    `execute_model`, `sample_tokens`, `_sample` and `_calc_spec_decode_metadata` (vllm/v1/worker/gpu_model_runner.py).
    """

    # Of an engine with elastic memory, and no other gets directives.
    _cache: ElasticCache

    def __init__(self, vllm_config: Any, device: torch.device) -> None:
        super().__init__(vllm_config, device)
        self._settings = settings.parse(vllm_config.additional_config)
        self._catch_up_tokens = self._settings.catch_up_tokens or CATCH_UP_TOKENS
        self._freshness = DraftFreshness(self.max_num_reqs, self.num_spec_tokens)
        self._blocks = DraftBlocks(vllm_config.cache_config.block_size)
        self._draft_pass = DraftPass(self.drafter, vllm_config)
        self._measure = StepMeasure(0)
        self._staleness = Staleness()
        # What a step without tokens, which samples nothing, still has to say.
        self._elastic_ns = 0
        self._obeyed: Obeyed | None = None

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        super().load_model(*args, **kwargs)
        self._draft_weight_bytes = sum(weight.nbytes for weight in self.drafter.model.parameters())

    def initialize_kv_cache_tensors(self, kv_cache_config: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._settings.elastic:
            return super().initialize_kv_cache_tensors(kv_cache_config, *args, **kwargs)
        self._cache = make_cache(kv_cache_config, self.drafter._draft_attn_layer_names)
        with allocating_in(self._cache):
            return super().initialize_kv_cache_tensors(kv_cache_config, *args, **kwargs)

    def execute_model(self, scheduler_output: Any, intermediate_tensors: Any = None) -> Any:
        if isinstance(scheduler_output, DirectedOutput):
            # Before any id of this step is looked at.
            self._obey(scheduler_output.directive)
        self._freshness.forget(scheduler_output.finished_req_ids)
        # At once, not when it resumes: requests that run before it may need every slot.
        self._freshness.forget(scheduler_output.preempted_req_ids or ())
        # A session that goes on under its old id has replaced its last token.
        self._freshness.forget(request.req_id for request in scheduler_output.scheduled_new_reqs)
        if (
            scheduler_output.finished_req_ids
            or scheduler_output.preempted_req_ids
            or scheduler_output.scheduled_new_reqs
        ):
            self._staleness.forget()
        for request, read in self._blocks.follow(scheduler_output).items():
            if read:
                self._freshness.start(request, read)
        output = super().execute_model(scheduler_output, intermediate_tensors)
        if self._obeyed is None or scheduler_output.total_num_scheduled_tokens:
            return output
        return with_measure(copy(output), self._take_measure(), None)

    def sample_tokens(self, grammar_output: Any) -> Any:
        self._measure = self._take_measure()
        output = super().sample_tokens(grammar_output)
        # The engine core would ask for them next.
        drafts = self.take_draft_token_ids()
        started = monotonic_ns()
        proposed = drafts is not None and bool(drafts.draft_token_ids)
        measured = with_measure(output, self._measure, drafts if proposed else None)
        self._measure.bookkeeping_ns += monotonic_ns() - started
        return measured

    def _take_measure(self) -> StepMeasure:
        """A measure for this step, with what happened before it."""
        measure = StepMeasure(self._draft_weight_bytes, elastic_ns=self._elastic_ns, obeyed=self._obeyed)
        self._elastic_ns, self._obeyed = 0, None
        return measure

    def _obey(self, directive: Directive) -> None:
        """The memory changes hands here and now: on CPUs there is no other stream that could do it meanwhile."""
        started = monotonic_ns()
        self._blocks.forget()
        if isinstance(directive, ExpandDirective):
            self._obeyed = self._cache.expand()
            self._freshness.forget_all()
            self._staleness.forget()
        else:
            moves = block_moves(directive.moves, num_blocks=self._cache.most, device=self.device)
            self._cache.migrate(moves)
            remap(self, moves)
            self._obeyed = self._cache.squeeze()
        self._elastic_ns = monotonic_ns() - started

    def _calc_spec_decode_metadata(self, num_draft_tokens: Ints, cu_num_scheduled_tokens: Ints) -> Any:
        """Without drafts each request samples behind its last token, and nothing else is asked for (`_sample`)."""
        if num_draft_tokens.any():
            return super()._calc_spec_decode_metadata(num_draft_tokens, cu_num_scheduled_tokens)
        return SpecDecodeMetadata(
            draft_token_ids=_NO_INDICES,
            num_draft_tokens=[0] * len(num_draft_tokens),
            cu_num_draft_tokens=_NO_INDICES,
            cu_num_sampled_tokens=_NO_INDICES,
            target_logits_indices=_NO_INDICES,
            bonus_logits_indices=_NO_INDICES,
            logits_indices=torch.from_numpy(cu_num_scheduled_tokens - 1),
        )

    def _sample(self, logits: Any, spec_decode_metadata: Any) -> Any:
        """Without drafts there is nothing to reject: vLLM's plain sampler costs less, and takes top-k, of which its
        rejection sampler dies when it has no drafts.
        """
        has_drafts = spec_decode_metadata.max_spec_len > 0
        return super()._sample(logits, spec_decode_metadata if has_drafts else None)

    def _input_fits_in_drafter(self, _: Any) -> bool:
        """Always. Requests near the end of the context propose nothing; vLLM would draft zeros for all instead."""
        return True

    def propose_draft_token_ids(
        self, scheduler_output: Any, sampled_token_ids: torch.Tensor, *_: Any
    ) -> list[list[int]]:
        """Drafts for each row of the batch, empty for a row that proposes nothing; γ = 0 has no rows at all.

        sampled_token_ids: [rows, γ + 1], filled up with -1
        """
        gamma = scheduler_output.num_spec_tokens_to_schedule
        drafts: list[list[int]] = []
        if gamma > 0:
            started = monotonic_ns()
            drafts = self._propose(sampled_token_ids, gamma)
            self._measure.draft_ns = monotonic_ns() - started - self._measure.catch_up_ns
        else:
            started = monotonic_ns()
            rows = self.input_batch.num_reqs
            if not self._staleness.grows(rows, scheduler_output.total_num_scheduled_tokens):
                known = int(self.input_batch.num_tokens_no_spec[:rows].sum())
                self._staleness.count(rows, max(known - self._freshness.total_read, 0))
            self._measure.bookkeeping_ns = monotonic_ns() - started
        self._measure.stale_tokens = self._staleness.tokens
        return drafts

    def _propose(self, sampled_token_ids: torch.Tensor, gamma: int) -> list[list[int]]:
        batch = self.input_batch
        rows = batch.num_reqs
        # A row whose prefill goes on samples nothing.
        prefilling = self.discard_request_mask.np[:rows]
        # vLLM writes the same tokens to the same places after drafting, so nothing it reads is changed.
        known = append_sampled(
            batch.token_ids_cpu,
            sampled_token_ids.numpy(),
            batch.num_tokens_no_spec[:rows],
            prefilling,
            batch.vocab_size,
        )
        slots = self._freshness.slots(batch.req_ids)
        read = self._freshness.settle(slots, batch.token_ids_cpu, known)
        # Drafts behind the end of the context cannot be verified, and the draft's own context may be shorter.
        context = min(self.max_model_len, self.effective_drafter_max_model_len)
        plan = plan_feeds(read, known, prefilling, context - 1 - gamma, self._catch_up_tokens)
        if len(plan.catch_up):
            self._catch_up(slots, plan.catch_up)
        self._staleness.count(rows, plan.stale_tokens)
        drafts: list[list[int]] = [[] for _ in range(rows)]
        if len(plan.newest):
            proposed = self._draft(slots, plan.newest, gamma)
            for row, tokens in zip(plan.newest.rows.tolist(), proposed.tolist(), strict=True):
                drafts[row] = tokens
        return drafts

    def _catch_up(self, slots: Indices, feed: Feed) -> None:
        started = monotonic_ns()
        self._draft_pass.read(feed, self.input_batch.token_ids_cpu, self._block_table())
        self._freshness.record(slots[feed.rows], feed.end)
        self._measure.catch_up_tokens = feed.tokens
        self._measure.catch_up_ns = monotonic_ns() - started

    def _draft(self, slots: Indices, newest: Feed, gamma: int) -> Ints:
        """γ greedy drafts for each row of `newest`, [newest, γ]."""
        tokens: Ints = self.input_batch.token_ids_cpu
        drafts = np.empty((len(newest), gamma), dtype=np.int32)
        feed = newest
        for index in range(gamma):
            drafts[:, index] = self._draft_pass.sample(self._draft_pass.read(feed, tokens, self._block_table()))
            if index + 1 < gamma:
                # Behind the known tokens, where the next pass reads and the next step overwrites.
                tokens[feed.rows, feed.end] = drafts[:, index]
                feed = Feed(feed.rows, feed.end, feed.end + 1)
        slots = slots[newest.rows]
        self._freshness.record(slots, newest.end)
        # The last draft was proposed, but not read.
        self._freshness.record_drafts(slots, drafts[:, :-1])
        self._mark(newest)
        return drafts

    def _mark(self, newest: Feed) -> None:
        """Whoever drafts has read its prompt."""
        batch = self.input_batch
        for row in newest.rows.tolist():
            request = batch.req_ids[row]
            if self._blocks.awaits(request):
                self._blocks.mark(request, int(batch.num_prompt_tokens[row]))

    def _block_table(self) -> torch.Tensor:
        table = self.input_batch.block_table[self.drafter.kv_cache_gid]
        block_table: torch.Tensor = table.get_device_tensor(self.input_batch.num_reqs)
        return block_table
