"""The fused pass of a draft that vLLM loaded, over the KV that vLLM allocated."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from nightjar_engine_patch.gpu.fused_draft import UnsupportedDraftError, caches_of, draft_of
from nightjar_engine_patch.gpu.unread import FIRST_PASS_TOKENS
from nightjar_kernels.draft_attention import Paged, parts_of
from nightjar_kernels.draft_inputs import Best, Inputs
from nightjar_kernels.draft_pass import Draft, run
from nightjar_kernels.small_linear import MOST_TOKENS
from nightjar_kernels.tiles import Tiles

# The largest batch of which a first pass has no more tokens than the kernels take.
MOST_REQUESTS = MOST_TOKENS // FIRST_PASS_TOKENS


@dataclass(frozen=True)
class FusedPass:
    """Everything stays where vLLM has it, so that it can be captured in a CUDA graph."""

    draft: Draft
    caches: Sequence[torch.Tensor]
    table: torch.Tensor
    """int32 [rows, blocks]: the blocks of each row of a batch"""
    multiprocessors: int
    tiles: Tiles

    def rank(self, read: Inputs, tokens: int, context: int) -> Best:
        """What may follow the last of the `tokens` new tokens of each row; a row of length 0 takes no part.

        context: the longest to expect, in tokens; longer ones take longer than they have to
        """
        rows = len(read.seq_lens)
        parts = parts_of(rows, self.draft.layers[0].heads.kv, context, self.multiprocessors, self.tiles)
        paged = Paged(self.table[:rows], read.seq_lens)
        return run(self.draft, read.ids, self.caches, paged, tokens=tokens, parts=parts, tiles=self.tiles)


def fused_pass_of(
    model: Any, attn_groups: Iterable[Iterable[Any]], block_tables: Any, device: torch.device, tiles: Tiles
) -> FusedPass:
    """For vLLM's draft model with its attention groups and the runner's block tables (vllm.v1.worker.gpu.block_table).

    Call it when weights and KV are where they stay: with elastic memory both move when the KV cache is allocated.
    UnsupportedDraftError says what is required and what was found.
    """
    draft, caches = draft_of(model), caches_of(model)
    table = _table(attn_groups, block_tables, caches)
    return FusedPass(draft, caches, table, torch.cuda.get_device_properties(device).multi_processor_count, tiles)


def _table(attn_groups: Iterable[Iterable[Any]], block_tables: Any, caches: Iterable[torch.Tensor]) -> torch.Tensor:
    groups = [group for groups in attn_groups for group in groups]
    ids = {group.kv_cache_group_id for group in groups}
    if len(ids) != 1:
        raise UnsupportedDraftError(
            f"the draft's fused pass: KV of all layers in one group is required, found {len(ids)} groups"
        )
    (group,) = ids
    size = block_tables.block_sizes[group]
    found = {cache.shape[2] for cache in caches} | {one.kernel_block_size or size for one in groups}
    if found != {size}:
        raise UnsupportedDraftError(
            f"the draft's fused pass: blocks of {size} tokens, as in the block tables, are required of caches and "
            f"attention kernels, found {sorted(found)}; set --block-size to {min(found)}"
        )
    table: torch.Tensor = block_tables.input_block_tables[group]
    return table
