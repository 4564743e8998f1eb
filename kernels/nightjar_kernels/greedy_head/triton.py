"""The Triton kernel."""
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# `tl.max`, `tl.min` and `tl.sum`, less what Triton's interpreter cannot call in a process that compiles as well.
from triton.language.standard import _elementwise_max, _elementwise_min, _sum_combine

from nightjar_kernels.dependent_launch import launches_dependents
from nightjar_kernels.greedy_head.naive import PART_TOKENS

if TYPE_CHECKING:
    from nightjar_kernels.draft_inputs import Best
    from nightjar_kernels.small_linear import Norm
    from nightjar_kernels.tiles import Tiles


def best_of_head(x: torch.Tensor, norm: Norm, head: torch.Tensor, out: Best, tiles: Tiles) -> None:
    (rows, inputs), tile = x.shape, tiles.head
    early = launches_dependents(x.device)
    _best_of_head_kernel[(out.ids.shape[1],)](
        x,
        x.stride(0),
        norm.weight,
        norm.eps,
        head,
        out.logits,
        out.ids,
        rows,
        len(head),
        ROWS_PADDED=max(16, triton.next_power_of_2(rows)),
        INPUTS=inputs,
        PART_TOKENS=PART_TOKENS,
        TILE_TOKENS=tile.tokens,
        TILE_INPUTS=tile.inputs,
        PDL=early,
        launch_pdl=early,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


@triton.jit
def _best_of_head_kernel(
    x_ptr,  # [rows, INPUTS]
    x_stride,
    norm_ptr,  # [INPUTS]
    eps,
    head_ptr,  # [vocabulary, INPUTS]
    best_logits_ptr,  # [rows, parts] float32
    best_ids_ptr,  # [rows, parts] int32
    rows,
    vocab_size,
    ROWS_PADDED: tl.constexpr,
    INPUTS: tl.constexpr,
    PART_TOKENS: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    TILE_INPUTS: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    part = tl.program_id(0)
    row, tile = tl.arange(0, ROWS_PADDED), tl.arange(0, TILE_INPUTS)
    has_row = row < rows
    x_ptrs = x_ptr + row[:, None] * x_stride + tile[None, :]
    squares = tl.full([ROWS_PADDED], 0.0, tl.float32)
    # Unrolled: the loads do not wait for one another.
    for piece in tl.static_range(0, INPUTS, TILE_INPUTS):
        x = tl.load(x_ptrs + piece, mask=has_row[:, None] & (piece + tile < INPUTS)[None, :], other=0.0)
        squares += tl.reduce(x.to(tl.float32) * x.to(tl.float32), 1, _sum_combine)
    scale = tl.rsqrt(squares / INPUTS + eps)
    best = tl.full([ROWS_PADDED], -float("inf"), tl.float32)
    best_id = tl.full([ROWS_PADDED], 0, tl.int32) + part * PART_TOKENS
    for first in range(0, PART_TOKENS, TILE_TOKENS):
        ids = part * PART_TOKENS + first + tl.arange(0, TILE_TOKENS)
        is_id = ids < vocab_size
        head_ptrs = head_ptr + ids.to(tl.int64)[None, :] * INPUTS + tile[:, None]
        logits = tl.full([ROWS_PADDED, TILE_TOKENS], 0.0, tl.float32)
        for start in range(0, INPUTS, TILE_INPUTS):
            has_input = start + tile < INPUTS
            x = tl.load(x_ptrs + start, mask=has_row[:, None] & has_input[None, :], other=0.0)
            norm = tl.load(norm_ptr + start + tile, mask=has_input, other=0.0)
            scaled = (x.to(tl.float32) * scale[:, None]).to(norm.dtype).to(tl.float32)
            x = (scaled * norm.to(tl.float32)[None, :]).to(norm.dtype)
            inside = is_id[None, :] & has_input[:, None]
            weight = tl.load(head_ptrs + start, mask=inside, other=0.0, eviction_policy="evict_first")
            logits = tl.dot(x, weight, logits)
        logits = logits.to(head_ptr.dtype.element_ty).to(tl.float32)
        logits = tl.where(is_id[None, :], logits, -float("inf"))
        tile_best = tl.reduce(logits, 1, _elementwise_max)
        # The first of the best; behind the vocabulary where there is nothing but NaN.
        tile_ids = tl.where(logits == tile_best[:, None], ids[None, :], vocab_size)
        tile_id = tl.reduce(tile_ids, 1, _elementwise_min)
        better = tile_best > best
        best, best_id = tl.where(better, tile_best, best), tl.where(better, tile_id, best_id)
    place = row * tl.num_programs(0) + part
    tl.store(best_logits_ptr + place, best, mask=has_row)
    # A token it has to be even then.
    tl.store(best_ids_ptr + place, tl.minimum(best_id, vocab_size - 1), mask=has_row)
