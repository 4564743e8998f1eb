"""The Triton kernel: every program rewrites a piece of one row."""
# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import triton
import triton.language as tl

ENTRIES = 256
NUM_WARPS = 2


def remap_block_tables(tables: torch.Tensor, lengths: torch.Tensor, lookup: torch.Tensor) -> None:
    rows, max_blocks = tables.shape
    _remap_block_tables_kernel[(rows, triton.cdiv(max_blocks, ENTRIES))](
        tables,
        lengths,
        lookup,
        tables.stride(0),
        ENTRIES=ENTRIES,
        num_warps=NUM_WARPS,
    )


@triton.jit
def _remap_block_tables_kernel(
    tables_ptr,  # [rows, max_blocks] int32
    lengths_ptr,  # [rows] int32
    lookup_ptr,  # [num_blocks] int32
    row_stride,
    ENTRIES: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths_ptr + row)
    start = tl.program_id(1) * ENTRIES
    # Most rows are shorter than the table is wide.
    if start < length:
        columns = start + tl.arange(0, ENTRIES)
        in_use = columns < length
        entries_ptr = tables_ptr + row * row_stride + columns
        old = tl.load(entries_ptr, mask=in_use, other=0)
        tl.store(entries_ptr, tl.load(lookup_ptr + old, mask=in_use, other=0), mask=in_use)
