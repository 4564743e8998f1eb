"""The ids that a model runner remembers, after blocks moved."""

from typing import Any

import torch

from nightjar_kernels.block_table_remap import remap_block_tables
from nightjar_kernels.moves import BlockMoves


def remap(runner: Any, moves: BlockMoves) -> None:
    """In its batch's block tables, and in the lists it fills them from (vllm/v1/worker/gpu_model_runner.py)."""
    if not len(moves):
        return
    lookup = moves.lookup()
    batch = runner.input_batch
    for table in batch.block_table.block_tables:
        lengths = torch.from_numpy(table.num_blocks_per_row[: batch.num_reqs])
        remap_block_tables(table.block_table.cpu[: batch.num_reqs], lengths, lookup)
    moved = dict(zip(moves.old.tolist(), moves.new.tolist(), strict=True))
    for state in runner.requests.values():
        for ids in state.block_ids:
            ids[:] = [moved.get(block_id, block_id) for block_id in ids]
