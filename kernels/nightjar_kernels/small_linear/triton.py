"""The Triton kernels.

One or two tokens are multiplied without tensor cores: a program reads whole rows of the matrix in one go, and has
nothing to wait for but memory. More tokens share rows on tensor cores: each warp of a program multiplies a share of the
inputs, so that none has a long chain of products to wait for, and the shares are added up at the end. That is split-K
within a program: with enough warps it has as much of the matrix on its way as several programs would, and no sums to
write to memory and read again.

Each kernel lets the next one start at once and reads its first weights, which nothing in a pass writes, before it
waits for what precedes it (programmatic dependent launch). Everything else, sizes of requests included, is read after
that: the kernel before the one before may not have ended yet.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# `tl.sum`, less what Triton's interpreter cannot call in a process that compiles as well.
from triton.language.standard import _sum_combine

from nightjar_kernels.dependent_launch import launches_dependents
from nightjar_kernels.tiles import RowTile

if TYPE_CHECKING:
    from nightjar_kernels.small_linear import Norm
    from nightjar_kernels.tiles import Tiles


def norm_linear(
    x: torch.Tensor, norm: Norm, weight: torch.Tensor, bias: torch.Tensor | None, tiles: Tiles
) -> torch.Tensor:
    return _launch(x, weight, len(weight), tiles, norm=norm, bias=bias)


def norm_gate_up(x: torch.Tensor, norm: Norm, weight: torch.Tensor, tiles: Tiles) -> torch.Tensor:
    return _launch(x, weight, len(weight) // 2, tiles, norm=norm, gated=True)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, tiles: Tiles) -> torch.Tensor:
    return _launch(x, weight, len(weight), tiles, residual=residual)


def _launch(
    x: torch.Tensor,
    weight: torch.Tensor,
    outputs: int,
    tiles: Tiles,
    *,
    norm: Norm | None = None,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    gated: bool = False,
) -> torch.Tensor:
    tokens, inputs = x.shape
    out = torch.empty(tokens, outputs, dtype=x.dtype, device=x.device)
    given = (x, norm and norm.weight, norm.eps if norm else 0.0, weight, bias, residual, out)
    parts = {"NORM": norm is not None, "BIAS": bias is not None, "ADD": residual is not None, "GATED": gated}
    early = launches_dependents(x.device)
    launch = {"PDL": early, "launch_pdl": early, "num_stages": 1}
    tile = tiles.of_matrix(tokens, inputs, gated=gated)
    if isinstance(tile, RowTile):
        rows, padded = tile.rows_at_once(inputs, outputs, gated=gated), triton.next_power_of_2(inputs)
        _few_tokens_kernel[(triton.cdiv(outputs, rows),)](
            *given,
            outputs,
            TOKENS=tokens,
            INPUTS=inputs,
            INPUTS_PADDED=padded,
            ROWS=rows,
            **parts,
            **launch,
            # 128 elements of each matrix to a thread, or less, but for the largest tiles.
            num_warps=8 if rows * padded >= 16384 else 4,
        )
    else:
        _tiles_kernel[(triton.cdiv(outputs, tile.outputs),)](
            *given,
            tokens,
            outputs,
            TOKENS_PADDED=max(8, triton.next_power_of_2(tokens)),
            INPUTS=inputs,
            TILE_OUTPUTS=tile.outputs,
            SHARES=tile.warps,
            SHARE_INPUTS=tile.share_inputs,
            **parts,
            **launch,
            num_warps=tile.warps,
        )
    return out


@triton.jit
def _few_tokens_kernel(  # noqa: C901 - its branches are variants, compiled apart
    x_ptr,  # [tokens, inputs]
    norm_ptr,  # [inputs]
    eps,
    weight_ptr,  # [outputs, inputs], of a gate and what it gates one after the other
    bias_ptr,  # [outputs]
    residual_ptr,  # [tokens, outputs]
    out_ptr,  # [tokens, outputs]
    outputs,
    TOKENS: tl.constexpr,
    INPUTS: tl.constexpr,
    INPUTS_PADDED: tl.constexpr,
    ROWS: tl.constexpr,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    GATED: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inputs = tl.arange(0, INPUTS_PADDED)
    has_row, has_input = row < outputs, inputs < INPUTS
    inside = has_row[:, None] & has_input[None, :]
    at = row.to(tl.int64)[:, None] * INPUTS + inputs[None, :]
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0, eviction_policy="evict_first")
    if GATED:
        second = outputs.to(tl.int64) * INPUTS
        gated_weight = tl.load(weight_ptr + second + at, mask=inside, other=0.0, eviction_policy="evict_first")
    if NORM:
        norm = tl.load(norm_ptr + inputs, mask=has_input, other=0.0)
    if BIAS:
        bias = tl.load(bias_ptr + row, mask=has_row, other=0.0).to(tl.float32)
    if PDL:
        gdc_wait()
    for token in tl.static_range(TOKENS):
        x = tl.load(x_ptr + token * INPUTS + inputs, mask=has_input, other=0.0).to(tl.float32)
        if NORM:
            scale = tl.rsqrt(tl.reduce(x * x, 0, _sum_combine) / INPUTS + eps)
            x = (x * scale).to(norm.dtype).to(tl.float32) * norm.to(tl.float32)
            x = x.to(norm.dtype).to(tl.float32)
        out = tl.reduce(weight.to(tl.float32) * x[None, :], 1, _sum_combine)
        if BIAS:
            out += bias
        if GATED:
            out = out / (1.0 + tl.exp(-out)) * tl.reduce(gated_weight.to(tl.float32) * x[None, :], 1, _sum_combine)
        place = token * outputs + row
        if ADD:
            out += tl.load(residual_ptr + place, mask=has_row, other=0.0).to(tl.float32)
        tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty), mask=has_row)


@triton.jit
def _tiles_kernel(  # noqa: C901 - its branches are variants, compiled apart
    x_ptr,  # [tokens, inputs]
    norm_ptr,  # [inputs]
    eps,
    weight_ptr,  # [outputs, inputs], of a gate and what it gates one after the other
    bias_ptr,  # [outputs]
    residual_ptr,  # [tokens, outputs]
    out_ptr,  # [tokens, outputs]
    tokens,
    outputs,
    TOKENS_PADDED: tl.constexpr,
    INPUTS: tl.constexpr,
    TILE_OUTPUTS: tl.constexpr,
    SHARES: tl.constexpr,
    SHARE_INPUTS: tl.constexpr,
    NORM: tl.constexpr,
    BIAS: tl.constexpr,
    ADD: tl.constexpr,
    GATED: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
    piece_inputs: tl.constexpr = SHARES * SHARE_INPUTS
    row = tl.program_id(0) * TILE_OUTPUTS + tl.arange(0, TILE_OUTPUTS)
    token = tl.arange(0, TOKENS_PADDED)
    has_row, has_token = row < outputs, token < tokens
    # [shares, inputs of a share]: each warp multiplies one share of a piece's inputs.
    share = tl.arange(0, SHARES)[:, None] * SHARE_INPUTS + tl.arange(0, SHARE_INPUTS)[None, :]
    # [shares, outputs, inputs of a share]
    weight_ptrs = weight_ptr + row.to(tl.int64)[None, :, None] * INPUTS + share[:, None, :]
    second = outputs.to(tl.int64) * INPUTS
    inside = has_row[None, :, None] & (share < INPUTS)[:, None, :]
    weight = tl.load(weight_ptrs, mask=inside, other=0.0, eviction_policy="evict_first")
    if GATED:
        gated_weight = tl.load(weight_ptrs + second, mask=inside, other=0.0, eviction_policy="evict_first")
        gated = tl.full([SHARES, TILE_OUTPUTS, TOKENS_PADDED], 0.0, tl.float32)
    # [shares, inputs of a share, tokens]
    x_ptrs = x_ptr + token[None, None, :] * INPUTS + share[:, :, None]
    if PDL:
        gdc_wait()
    if NORM:
        squares = tl.full([TOKENS_PADDED], 0.0, tl.float32)
        # Unrolled: the loads do not wait for one another.
        for piece in tl.static_range(0, INPUTS, piece_inputs):
            given = has_token[None, None, :] & (piece + share < INPUTS)[:, :, None]
            seen = tl.load(x_ptrs + piece, mask=given, other=0.0).to(tl.float32)
            squares += tl.reduce(tl.reduce(seen * seen, 1, _sum_combine), 0, _sum_combine)
        scale = tl.rsqrt(squares / INPUTS + eps)
    out = tl.full([SHARES, TILE_OUTPUTS, TOKENS_PADDED], 0.0, tl.float32)
    for start in range(0, INPUTS, piece_inputs):
        has_input = start + share < INPUTS
        x = tl.load(x_ptrs + start, mask=has_token[None, None, :] & has_input[:, :, None], other=0.0)
        if NORM:
            norm = tl.load(norm_ptr + start + share, mask=has_input, other=0.0)
            scaled = (x.to(tl.float32) * scale[None, None, :]).to(norm.dtype).to(tl.float32)
            x = (scaled * norm.to(tl.float32)[:, :, None]).to(norm.dtype)
        # The next piece is on its way while this one is multiplied.
        following = start + piece_inputs
        inside = has_row[None, :, None] & (following + share < INPUTS)[:, None, :]
        next_weight = tl.load(weight_ptrs + following, mask=inside, other=0.0, eviction_policy="evict_first")
        if GATED:
            next_gated = tl.load(
                weight_ptrs + second + following, mask=inside, other=0.0, eviction_policy="evict_first"
            )
            gated = tl.dot(gated_weight, x, gated)
            gated_weight = next_gated
        out = tl.dot(weight, x, out)
        weight = next_weight
    total = tl.reduce(out, 0, _sum_combine)
    if BIAS:
        total += tl.load(bias_ptr + row, mask=has_row, other=0.0).to(tl.float32)[:, None]
    if GATED:
        total = total / (1.0 + tl.exp(-total)) * tl.reduce(gated, 0, _sum_combine)
    place = token[None, :] * outputs + row[:, None]
    inside_out = has_token[None, :] & has_row[:, None]
    if ADD:
        total += tl.load(residual_ptr + place, mask=inside_out, other=0.0).to(tl.float32)
    tl.store(out_ptr + place, total.to(out_ptr.dtype.element_ty), mask=inside_out)
