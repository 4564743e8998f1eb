"""vLLM's standalone draft for Model Runner V2, in CUDA graphs, for any speculative length and none.

Three kinds of pass: over the last two tokens of each request of the batch, which gives the first draft; over the
newest draft of each, run once for each draft more; and over pieces of what some requests have unread. Each is captured
for some sizes, and the graphs of a batch size serve every length. What a pass reads is gathered inside its graph, from
tensors that vLLM keeps at their addresses. In between runs vLLM's model, or for small batches our kernels
(`fused_pass`), whichever was faster when the engine started.
"""

import logging
from contextlib import nullcontext
from functools import partial
from time import monotonic, monotonic_ns
from typing import Any

import numpy as np
import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.attention.backends.utils import PAD_SLOT_ID
from vllm.v1.worker.gpu.attn_utils import build_attn_metadata, build_slot_mappings_by_layer
from vllm.v1.worker.gpu.input_batch import InputBatch, InputBuffers
from vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator import StandaloneARSpeculator
from vllm.v1.worker.gpu.states import RequestState

from nightjar_engine_patch.draft_blocks import DraftBlocks
from nightjar_engine_patch.draft_passes import DraftPasses
from nightjar_engine_patch.draft_tiles import tiles_of
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.gpu.contexts import short_context, unsplit_attention
from nightjar_engine_patch.gpu.draft_graphs import DraftGraphs, batch_sizes, piece_sizes
from nightjar_engine_patch.gpu.fused_pass import fused_pass_of
from nightjar_engine_patch.gpu.pass_choice import PassKind, Rank, Run, choose_passes
from nightjar_engine_patch.gpu.pass_trial import Trial
from nightjar_engine_patch.gpu.step_timer import StepTimer
from nightjar_engine_patch.gpu.unread import FIRST_PASS_TOKENS, DraftPlan, Flags, Indices, Ints, Unread, plan_draft
from nightjar_engine_patch.settings import EngineSettings
from nightjar_engine_patch.step_measure import CapturedGraphs
from nightjar_kernels.draft_inputs import (
    Best,
    Inputs,
    Requests,
    advance,
    best_of_parts,
    newest_inputs,
    parts_of,
    unread_inputs,
)

_log = logging.getLogger("vllm.nightjar")

# A chunk takes the draft of a 7B target about 4 ms, a step with 64 requests and three drafts 12 ms.
CATCH_UP_TOKENS = 2048


class GraphedSpeculator(StandaloneARSpeculator):
    """Replaces `propose`, `init_cudagraph_manager` and `capture`, and extends `load_model` and `set_attn`
    (vllm/v1/worker/gpu/spec_decode/standalone_ar/speculator.py); vLLM's own passes serve its dummy runs.
    """

    # vLLM drops graphs in attributes of this object once it knows how much memory they take.
    _first_graphs: DraftGraphs | None = None
    _next_graphs: DraftGraphs | None = None
    _short_first_graphs: DraftGraphs | None = None
    _short_next_graphs: DraftGraphs | None = None
    _piece_graphs: DraftGraphs | None = None
    is_estimate = False
    """While vLLM captures everything only to see how much memory that takes: it is captured again before it serves."""

    def __init__(
        self,
        vllm_config: Any,
        device: torch.device,
        req_states: RequestState,
        settings: EngineSettings,
        timer: StepTimer,
    ) -> None:
        super().__init__(vllm_config, device)
        self._requests = Requests(
            req_states.num_computed_tokens.gpu, req_states.all_token_ids.gpu, req_states.last_sampled_tokens
        )
        self._budget = min(settings.catch_up_tokens or CATCH_UP_TOKENS, self.max_num_tokens)
        self._largest_batch = min(settings.draft_graph_requests, self.max_num_reqs)
        self._timer = timer
        self._context = min(self.max_model_len, self.draft_model_config.max_model_len)
        most = self.max_num_reqs
        self._first = InputBuffers(most, FIRST_PASS_TOKENS * most, device)
        self._next = InputBuffers(most, most, device)
        self._piece = InputBuffers(most, self.max_num_tokens, device)
        self._piece_slots = torch.full((most,), -1, dtype=torch.int64, device=device)
        self._piece_unread = torch.zeros(most, dtype=torch.int32, device=device)
        self._piece_real = torch.zeros(self.max_num_tokens, dtype=torch.bool, device=device)
        parts = parts_of(self.vocab_size)
        self._best = Best(
            torch.zeros(most, parts, dtype=torch.float32, device=device),
            torch.zeros(most, parts, dtype=torch.int32, device=device),
        )
        self._columns = torch.zeros(most, dtype=torch.int32, device=device)
        # What `idx_mapping` holds: from step to step it is mostly the same.
        self._drafting_rows = np.full(most, -2, dtype=np.int64)
        self.unread = Unread(most)
        self.blocks = DraftBlocks(vllm_config.cache_config.block_size)
        self.weight_bytes = 0
        self.captured: CapturedGraphs | None = None
        self.stale_tokens = 0
        self.read_tokens = 0
        self.bookkeeping_ns = 0
        self.proposed: frozenset[str] | None = None
        self.passes = DraftPasses()
        self.tiles = tiles_of(torch.cuda.get_device_name(device), settings)

    def load_model(self, target_model: Any) -> None:
        super().load_model(target_model)
        self.weight_bytes = sum(weight.nbytes for weight in self.model.parameters())

    def set_attn(self, *args: Any, **kwargs: Any) -> None:
        super().set_attn(*args, **kwargs)
        if not self.supports_decode_metadata_update:
            names = sorted({group.backend.get_name() for groups in self.attn_groups for group in groups})
            raise RefusalError(
                f"attention backend: one that can refresh its metadata inside a CUDA graph is required for the draft, "
                f"found {', '.join(names)}; FLASH_ATTN can (--attention-backend)"
            )

    def init_cudagraph_manager(self, cudagraph_mode: CUDAGraphMode) -> None:
        self._restore_starts()
        if cudagraph_mode.decode_mode() != CUDAGraphMode.FULL:
            return
        counts = self.vllm_config.compilation_config.cudagraph_capture_sizes
        batches = sorted({*(count for count in counts if count <= self._largest_batch), self._largest_batch} - {0})
        self._first_graphs, self._short_first_graphs = (
            self._graphs(batch_sizes(batches, FIRST_PASS_TOKENS)) for _ in range(2)
        )
        self._next_graphs, self._short_next_graphs = (self._graphs(batch_sizes(batches, 1)) for _ in range(2))
        self._piece_graphs = self._graphs(piece_sizes(self._budget, self.max_num_reqs))

    def _graphs(self, sizes: Any) -> DraftGraphs:
        return DraftGraphs(self.vllm_config, self.device, sizes)

    def capture(self) -> None:
        """All graphs, at start-up; vLLM calls this twice, first for an estimate."""
        started, free = monotonic(), torch.accelerator.get_memory_info()[0]
        # Nothing that a graph is captured with belongs to a request.
        self.idx_mapping.fill_(-1)
        self._drafting_rows.fill(-1)
        self._piece_slots.fill_(-1)
        # Pieces need most memory: what comes later fits into it.
        self._capture(self._piece_graphs, self._run_piece, self._piece, "pieces")
        kinds = self._kinds()
        for kind in kinds:
            with unsplit_attention(self.attn_groups) if kind.is_short else nullcontext():
                self._capture(kind.graphs, kind.run, kind.buffers, kind.what)
        self.passes = self._choose_passes(kinds)
        self._restore_starts()
        if self.is_estimate:
            return
        _log.info("passes of the draft, %s", self.passes)
        self.captured = CapturedGraphs(
            sum(len(one.graphs) for one in vars(self).values() if isinstance(one, DraftGraphs)),
            monotonic() - started,
            # Others on the device may have freed some.
            max(0, free - torch.accelerator.get_memory_info()[0]),
        )
        _log.info(
            "CUDA graphs of the draft: %d captured in %.1f s, %.2f GiB",
            self.captured.count,
            self.captured.seconds,
            self.captured.nbytes / 2**30,
        )

    def _capture(self, graphs: DraftGraphs | None, run: Run, buffers: InputBuffers, what: str) -> None:
        if graphs is not None:
            description = f"Capturing CUDA graphs of the draft, {what}"
            given = (self.model_state, buffers, self.block_tables, self.attn_groups, self.kv_cache_config)
            graphs.capture(run, *given, progress_bar_desc=description)

    def _kinds(self) -> list[PassKind]:
        """Of passes over whole batches, as far as they are captured at all."""
        first, following = (self._run_first, self._first, FIRST_PASS_TOKENS), (self._run_next, self._next, 1)
        found = (
            ("first drafts", self._first_graphs, first, False),
            ("further drafts", self._next_graphs, following, False),
            ("first drafts of short contexts", self._short_first_graphs, first, True),
            ("further drafts of short contexts", self._short_next_graphs, following, True),
        )
        return [
            PassKind(what, graphs, *how, is_short, self._context)
            for what, graphs, how, is_short in found
            if graphs is not None
        ]

    @torch.inference_mode()
    def _choose_passes(self, kinds: list[PassKind]) -> DraftPasses:
        tables = [*(table.gpu for table in self.block_tables.block_tables), *self.block_tables.input_block_tables]
        trial = Trial(self.idx_mapping, self._columns, self._requests, tables, self.kv_cache_config.num_blocks)
        # Not before: with elastic memory, weights and KV have moved since the model was loaded.
        make = partial(fused_pass_of, self.model, self.attn_groups, self.block_tables, self.device, self.tiles.tiles)
        return choose_passes(kinds, make, self._capture_fused, None if self.is_estimate else trial, self.tiles.told)

    def _capture_fused(self, kind: PassKind, rank: Rank) -> DraftGraphs:
        graphs = self._graphs(kind.small())
        self._capture(graphs, partial(kind.run, rank=rank), kind.buffers, f"fused {kind.what}")
        self._restore_starts()
        return graphs

    def _restore_starts(self) -> None:
        """Row r's tokens start at r times their number, whatever the batch; capturing writes other numbers."""
        for buffers, tokens in ((self._first, FIRST_PASS_TOKENS), (self._next, 1)):
            starts = buffers.query_start_loc
            torch.arange(0, len(starts) * tokens, tokens, dtype=starts.dtype, out=starts)

    @torch.inference_mode()
    def propose(
        self,
        input_batch: InputBatch,
        *args: Any,
        dummy_run: bool = False,
        num_speculative_tokens: int | None = None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Drafts of each row, [rows, Γmax], of which vLLM uses the first `num_speculative_tokens`.

        Rows that propose nothing hold tokens that nobody proposed: vLLM verifies as many of every row.
        """
        if dummy_run:
            # vLLM's passes write to `idx_mapping` as well.
            self._drafting_rows = np.full(self.max_num_reqs, -2, dtype=np.int64)
            return super().propose(
                input_batch, *args, dummy_run=True, num_speculative_tokens=num_speculative_tokens, **kwargs
            )
        started = monotonic_ns()
        slots = input_batch.idx_mapping_np
        gamma = self.num_speculative_steps if num_speculative_tokens is None else num_speculative_tokens
        unread = self.unread.step(slots, input_batch.num_scheduled_tokens, input_batch.num_computed_tokens_np)
        self.read_tokens, self.proposed = 0, None
        drafts = self.draft_tokens[: input_batch.num_reqs]
        if gamma == 0:
            self.stale_tokens = int(unread.sum())
            self.bookkeeping_ns = monotonic_ns() - started
            return drafts
        plan = self._plan(input_batch, unread, gamma)
        self._note(plan, unread, input_batch.req_ids)
        self.bookkeeping_ns = monotonic_ns() - started
        if self.read_tokens:
            self._catch_up(input_batch, slots, unread, plan.pieces)
            self._timer.caught_up()
        if plan.drafting.any():
            self._draft(input_batch, plan.drafting, gamma)
            self._mark(input_batch, plan.drafting)
        else:
            # What lies here may be no token at all, and vLLM looks its embedding up.
            drafts.zero_()
        self._timer.drafted()
        return drafts

    def _plan(self, batch: InputBatch, unread: Ints, gamma: int) -> DraftPlan:
        scheduled, computed = batch.num_scheduled_tokens, batch.num_computed_tokens_np
        prefilling: Flags = batch.num_computed_prefill_tokens_np + scheduled < batch.prefill_len_np
        # The newest token lies behind what is computed, and drafts behind it.
        room: Flags = computed + scheduled + 1 + gamma <= self._context
        # A prompt's tokens, which the target reads in this step as well, are not what a switch costs.
        prompt = int(scheduled[batch.is_prefilling_np].sum()) if batch.has_prefill else 0
        return plan_draft(unread, prefilling, room, min(self._budget + prompt, self.max_num_tokens))

    def _note(self, plan: DraftPlan, unread: Ints, names: list[str]) -> None:
        self.read_tokens = int(plan.pieces.sum())
        if plan.drafting.all():
            self.stale_tokens = 0
            return
        self.stale_tokens = int((unread - plan.pieces)[~plan.drafting].sum())
        self.proposed = frozenset(names[row] for row in np.flatnonzero(plan.drafting))

    def _catch_up(self, batch: InputBatch, slots: Indices, unread: Ints, pieces: Ints) -> None:
        """One pass over the unread tokens that the plan picked."""
        chosen = np.flatnonzero(pieces)
        lengths = pieces[chosen]
        rows, tokens = len(chosen), int(lengths.sum())
        size = self._piece_graphs.smallest(rows, tokens) if self._piece_graphs is not None else None
        padded = rows if size is None else size.num_reqs or rows
        starts = np.full(padded + 1, tokens, dtype=np.int32)
        starts[: rows + 1] = np.concatenate(([0], np.cumsum(lengths)))
        self._upload(_padded(slots[chosen], padded, -1), self._piece_slots)
        self._upload(_padded(unread[chosen], padded, 0), self._piece_unread)
        self._upload(starts, self._piece.query_start_loc)
        tables = self.block_tables
        tables.gather_block_tables(self._piece_slots[:rows], num_reqs_padded=padded)
        if self._piece_graphs is not None and size is not None:
            self._replay(self._piece_graphs, size)
        else:
            self._run_eagerly(self._run_piece, self._piece, starts)
        # As vLLM had gathered them: row by row of the batch.
        tables.gather_block_tables(batch.idx_mapping, num_reqs_padded=batch.num_reqs_after_padding)
        self.unread.read(slots[chosen], lengths)

    def _draft(self, batch: InputBatch, drafting: Flags, gamma: int) -> None:
        rows, slots = batch.num_reqs, batch.idx_mapping_np
        chosen = _padded(np.where(drafting, slots, -1), self.max_num_reqs, -1)
        if not np.array_equal(chosen, self._drafting_rows):
            self._upload(chosen, self.idx_mapping)
            self._drafting_rows = chosen
        longest = int((batch.num_computed_tokens_np + batch.num_scheduled_tokens).max()) + 1 + gamma
        is_short = longest <= short_context(rows)
        first, following = (
            (self._short_first_graphs, self._short_next_graphs) if is_short else (self._first_graphs, self._next_graphs)
        )
        self._run_batch(first, self._run_first, self._first, rows, FIRST_PASS_TOKENS)
        for _ in range(gamma - 1):
            self._run_batch(following, self._run_next, self._next, rows, 1)
        self.unread.draft(slots[drafting])

    def _mark(self, batch: InputBatch, drafting: Flags) -> None:
        """Whoever drafts has read its prompt; the device will have when a later step reads it."""
        if self.blocks.awaits_any:
            for row in np.flatnonzero(drafting).tolist():
                request = batch.req_ids[row]
                if self.blocks.awaits(request):
                    self.blocks.mark(request, int(batch.prefill_len_np[row]))

    def _upload(self, values: np.ndarray[Any, Any], out: torch.Tensor) -> None:
        async_tensor_h2d(values, out=out[: len(values)])

    def _run_batch(self, graphs: DraftGraphs | None, run: Run, buffers: InputBuffers, rows: int, tokens: int) -> None:
        size = graphs.smallest(rows, rows * tokens) if graphs is not None else None
        if graphs is not None and size is not None:
            self._replay(graphs, size)
        else:
            self._run_eagerly(run, buffers, self.arange_np[: rows + 1] * tokens)

    def _replay(self, graphs: DraftGraphs, size: Any) -> None:
        for groups in self.attn_groups:
            for group in groups:
                group.map_to_kernel_block_table(self.block_tables.input_block_tables[group.kv_cache_group_id])
        graphs.run_fullgraph(size)

    def _run_eagerly(self, run: Run, buffers: InputBuffers, starts: Ints) -> None:
        """The same pass without a graph.

        starts: [rows + 1], where each row's tokens start
        """
        rows, tokens = len(starts) - 1, int(starts[-1])
        mapping = self.block_tables.slot_mappings[:, :tokens]
        metadata = build_attn_metadata(
            attn_groups=self.attn_groups,
            num_reqs=rows,
            num_tokens=tokens,
            query_start_loc_gpu=buffers.query_start_loc[: rows + 1],
            query_start_loc_cpu=torch.from_numpy(starts.astype(np.int32)),
            max_query_len=int(np.diff(starts).max()),
            seq_lens=buffers.seq_lens[:rows],
            max_seq_len=self.max_model_len,
            block_tables=[table[:rows] for table in self.block_tables.input_block_tables],
            slot_mappings=mapping,
            kv_cache_config=self.kv_cache_config,
            # Nobody here knows better, and our passes bring the metadata in line with what they gather.
            seq_lens_cpu_upper_bound=torch.full((rows,), self.max_model_len, dtype=torch.int32),
            positions=buffers.positions[:tokens],
            is_prefilling=self.draft_is_prefilling[:rows],
        )
        run(rows, tokens, metadata, build_slot_mappings_by_layer(mapping, self.kv_cache_config))

    def _run_first(
        self, rows: int, tokens: int, metadata: Any, mapping: Any, *_: Any, rank: Rank | None = None, **__: Any
    ) -> None:
        """`rank` in place of vLLM's model."""
        read = _inputs(self._first, rows, tokens)
        newest_inputs(self.idx_mapping[:rows], self._requests, read)
        best = rank(read) if rank else self._run_and_rank(self._first, read, FIRST_PASS_TOKENS, metadata, mapping)
        following = _inputs(self._next, rows, rows)
        advance(best, read, self.draft_tokens, self._columns, following, self._context, first=True)

    def _run_next(
        self, rows: int, tokens: int, metadata: Any, mapping: Any, *_: Any, rank: Rank | None = None, **__: Any
    ) -> None:
        read = _inputs(self._next, rows, tokens)
        best = rank(read) if rank else self._run_and_rank(self._next, read, 1, metadata, mapping)
        advance(best, read, self.draft_tokens, self._columns, read, self._context, first=False)

    def _run_piece(self, rows: int, tokens: int, metadata: Any, mapping: Any, *_: Any, **__: Any) -> None:
        read, real = _inputs(self._piece, rows, tokens), self._piece_real[:tokens]
        slots, starts = self._piece_slots[:rows], self._piece.query_start_loc[: rows + 1]
        unread_inputs(slots, self._piece_unread[:rows], starts, self._requests, read, real, tokens)
        self._find_slots(slots, starts, read).masked_fill_(~real, PAD_SLOT_ID)
        self._update_draft_decode_metadata(metadata, rows)
        self._run_model(read.ids, read.positions, metadata, mapping, None)

    def _run_and_rank(self, buffers: InputBuffers, read: Inputs, tokens: int, metadata: Any, mapping: Any) -> Best:
        """What may follow the last token of each row; slots and metadata are brought in line with `read` first."""
        rows = len(read.seq_lens)
        self._find_slots(self.idx_mapping[:rows], buffers.query_start_loc[: rows + 1], read)
        self._update_draft_decode_metadata(metadata, rows)
        hidden = self._run_model(read.ids, read.positions, metadata, mapping, None)
        best = Best(self._best.logits[:rows], self._best.ids[:rows])
        best_of_parts(self.model.compute_logits(hidden[tokens - 1 :: tokens]), best)
        return best

    def _find_slots(self, slots: torch.Tensor, starts: torch.Tensor, read: Inputs) -> torch.Tensor:
        """Where the pass writes its KV, in vLLM's own buffer; as much of it as the pass needs."""
        tokens = len(read.ids)
        out = self.block_tables.slot_mappings[:, :tokens]
        found: torch.Tensor = self.block_tables.compute_slot_mappings(slots, starts, read.positions, tokens, out=out)
        return found


def _inputs(buffers: InputBuffers, rows: int, tokens: int) -> Inputs:
    return Inputs(buffers.input_ids[:tokens], buffers.positions[:tokens], buffers.seq_lens[:rows])


def _padded(values: np.ndarray[Any, Any], length: int, fill: int) -> np.ndarray[Any, Any]:
    padded = np.full(length, fill, dtype=values.dtype)
    padded[: len(values)] = values
    return padded
