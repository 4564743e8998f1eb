"""The Triton kernels.

A program has one row, the queries of one KV head and a part of the row's context. The first part also has the new
tokens, which it takes from what the matrix before wrote and not from the cache that it writes them to.

The beginning of a part is read before a program waits for that matrix (programmatic dependent launch), for sizes,
tables and the context's KV are from before the pass: it begins with a kernel, the embedding, that waits for all of that
and lets nothing start before its end.
"""
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

# `tl.max` and `tl.sum`, less what Triton's interpreter cannot call in a process that compiles as well.
from triton.language.standard import _elementwise_max, _sum_combine

from nightjar_kernels.dependent_launch import launches_dependents

if TYPE_CHECKING:
    from nightjar_kernels.draft_attention import Heads, Paged
    from nightjar_kernels.tiles import Tiles


def attend(
    qkv: torch.Tensor,
    heads: Heads,
    cache: torch.Tensor,
    paged: Paged,
    *,
    tokens: int,
    parts: int,
    tiles: Tiles,
) -> torch.Tensor:
    rows, device, tile = len(paged.seq_lens), qkv.device, tiles.attention
    early = launches_dependents(device)
    launch = {"PDL": early, "launch_pdl": early}
    out = torch.empty(len(qkv), heads.queries * heads.size, dtype=qkv.dtype, device=device)
    # What the parts of a context found, to be put together: largest score, sum of weights, weighted sum of values.
    largest, weights = torch.empty(2, parts, len(qkv), heads.queries, dtype=torch.float32, device=device)
    values = torch.empty(parts, len(qkv), heads.queries, heads.size, dtype=torch.float32, device=device)
    query_norm, key_norm = heads.query_norm, heads.key_norm
    group = heads.queries // heads.kv
    _attend_kernel[(rows, heads.kv, parts)](
        qkv,
        query_norm and query_norm.weight,
        key_norm and key_norm.weight,
        query_norm.eps if query_norm else 0.0,
        heads.rotary,
        cache,
        cache.stride(0),
        cache.stride(1),
        cache.stride(2),
        paged.tables,
        paged.tables.stride(0),
        paged.seq_lens,
        out,
        largest,
        weights,
        values,
        heads.size**-0.5,
        TOKENS=tokens,
        PARTS=parts,
        QUERIES=heads.queries,
        KV_HEADS=heads.kv,
        # Tensor cores multiply 16 rows and columns or more.
        ROWS_PADDED=max(16, triton.next_power_of_2(group * tokens)),
        TOKENS_PADDED=16,
        SIZE=heads.size,
        HALF_PADDED=max(16, triton.next_power_of_2(heads.size // 2)),
        BLOCK_TOKENS=cache.shape[2],
        TILE_TOKENS=tile.tokens,
        NORM=query_norm is not None,
        **launch,
        num_warps=tile.warps,
    )
    if parts > 1:
        _combine_kernel[(len(qkv), heads.queries)](
            largest,
            weights,
            values,
            out,
            PARTS=parts,
            PARTS_PADDED=triton.next_power_of_2(parts),
            SIZE=heads.size,
            SIZE_PADDED=triton.next_power_of_2(heads.size),
            **launch,
            num_warps=4,
        )
    return out


@triton.jit
def _angles(rotary_ptr, positions, inside, element, SIZE: tl.constexpr):
    """Cosines and sines for [positions, elements of a half]."""
    ptrs = rotary_ptr + positions[:, None] * SIZE + element[None, :]
    cos, sin = tl.load(ptrs, mask=inside, other=0.0), tl.load(ptrs + SIZE // 2, mask=inside, other=0.0)
    return cos.to(tl.float32), sin.to(tl.float32)


@triton.jit
def _rotated(x_ptrs, cos, sin, inside, norm_ptr, element, eps, HALF: tl.constexpr, NORM: tl.constexpr):
    """Heads, [rows, elements of a half] twice, after norm and rotary embedding, which mixes the halves."""
    first, second = tl.load(x_ptrs, mask=inside, other=0.0), tl.load(x_ptrs + HALF, mask=inside, other=0.0)
    wide_1, wide_2 = first.to(tl.float32), second.to(tl.float32)
    if NORM:
        norm_1 = tl.load(norm_ptr + element, mask=element < HALF, other=0.0).to(tl.float32)
        norm_2 = tl.load(norm_ptr + HALF + element, mask=element < HALF, other=0.0).to(tl.float32)
        squares = tl.reduce(wide_1 * wide_1 + wide_2 * wide_2, 1, _sum_combine)
        scale = tl.rsqrt(squares / (2 * HALF) + eps)[:, None]
        wide_1 = ((wide_1 * scale).to(first.dtype).to(tl.float32) * norm_1[None, :]).to(first.dtype).to(tl.float32)
        wide_2 = ((wide_2 * scale).to(first.dtype).to(tl.float32) * norm_2[None, :]).to(first.dtype).to(tl.float32)
    return (wide_1 * cos - wide_2 * sin).to(first.dtype), (wide_2 * cos + wide_1 * sin).to(first.dtype)


@triton.jit
def _context_tile(
    cache_ptr,  # the KV head's
    cache_block_stride,
    cache_token_stride,
    table_ptr,  # the row's
    seen,
    end,
    element,
    SIZE: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
):
    """Keys and values of tokens `seen` before `end`, each [tokens, elements of a half] twice."""
    is_seen = seen < end
    block = tl.load(table_ptr + seen // BLOCK_TOKENS, mask=is_seen, other=0).to(tl.int64)
    slot = block * cache_block_stride + seen % BLOCK_TOKENS * cache_token_stride
    ptrs, inside = cache_ptr + slot[:, None] + element[None, :], is_seen[:, None] & (element < SIZE // 2)[None, :]
    return (
        tl.load(ptrs, mask=inside, other=0.0),
        tl.load(ptrs + SIZE // 2, mask=inside, other=0.0),
        tl.load(ptrs + SIZE, mask=inside, other=0.0),
        tl.load(ptrs + SIZE + SIZE // 2, mask=inside, other=0.0),
    )


@triton.jit
def _attended(q_1, q_2, keys_1, keys_2, values_1, values_2, is_seen, score_scale, largest, weights, v_1, v_2):
    """What is known of a softmax, [rows] and [rows, elements of a half], with a tile of tokens more.

    Every row has seen a token before or sees one of these.
    """
    scores = (tl.dot(q_1, tl.trans(keys_1)) + tl.dot(q_2, tl.trans(keys_2))) * score_scale
    scores = tl.where(is_seen, scores, -float("inf"))
    now_largest = tl.maximum(largest, tl.reduce(scores, 1, _elementwise_max))
    kept, weight = tl.exp(largest - now_largest), tl.exp(scores - now_largest[:, None])
    weights = weights * kept + tl.reduce(weight, 1, _sum_combine)
    v_1 = v_1 * kept[:, None] + tl.dot(weight.to(values_1.dtype), values_1)
    v_2 = v_2 * kept[:, None] + tl.dot(weight.to(values_2.dtype), values_2)
    return now_largest, weights, v_1, v_2


@triton.jit
def _attend_kernel(  # noqa: PLR0915 - what a program does once, in its order
    qkv_ptr,  # [rows * TOKENS, (QUERIES + 2 * KV_HEADS) * SIZE]
    query_norm_ptr,  # [SIZE]
    key_norm_ptr,  # [SIZE]
    eps,
    rotary_ptr,  # [positions, SIZE], cosines before sines
    cache_ptr,  # [blocks, KV_HEADS, BLOCK_TOKENS, 2 * SIZE]
    cache_block_stride,
    cache_head_stride,
    cache_token_stride,
    tables_ptr,  # [rows, blocks] int32
    tables_stride,
    seq_lens_ptr,  # [rows] int32
    out_ptr,  # [rows * TOKENS, QUERIES * SIZE]
    largest_ptr,  # [PARTS, rows * TOKENS, QUERIES] float32
    weights_ptr,  # [PARTS, rows * TOKENS, QUERIES] float32
    values_ptr,  # [PARTS, rows * TOKENS, QUERIES, SIZE] float32
    score_scale,
    TOKENS: tl.constexpr,
    PARTS: tl.constexpr,
    QUERIES: tl.constexpr,
    KV_HEADS: tl.constexpr,
    ROWS_PADDED: tl.constexpr,
    TOKENS_PADDED: tl.constexpr,
    SIZE: tl.constexpr,
    HALF_PADDED: tl.constexpr,
    BLOCK_TOKENS: tl.constexpr,
    TILE_TOKENS: tl.constexpr,
    NORM: tl.constexpr,
    PDL: tl.constexpr,
):
    HALF: tl.constexpr = SIZE // 2
    GROUP: tl.constexpr = QUERIES // KV_HEADS
    WIDTH: tl.constexpr = (QUERIES + 2 * KV_HEADS) * SIZE
    if PDL:
        gdc_launch_dependents()
    row, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    seq_len = tl.load(seq_lens_ptr + row)
    takes_part = seq_len > 0
    # Tokens that are in the cache before this; the new ones come from the matrix.
    context = tl.maximum(seq_len - TOKENS, 0)
    element = tl.arange(0, HALF_PADDED)
    has_element = (element < HALF)[None, :]
    row_ptr = qkv_ptr + row * TOKENS * WIDTH
    table_ptr = tables_ptr + row * tables_stride
    head_cache_ptr = cache_ptr + head * cache_head_stride

    # Token by token the queries of the KV head.
    query = tl.arange(0, ROWS_PADDED)
    token, query_head = query // GROUP, head * GROUP + query % GROUP
    is_query = query < TOKENS * GROUP
    has_half = is_query[:, None] & has_element
    cos, sin = _angles(rotary_ptr, context + token, has_half, element, SIZE)
    length = (context + PARTS * TILE_TOKENS - 1) // (PARTS * TILE_TOKENS) * TILE_TOKENS
    start, end = part * length, tl.minimum(context, (part + 1) * length)
    seen = start + tl.arange(0, TILE_TOKENS)
    # Not one kernel of this pass writes what is read up to here.
    keys_1, keys_2, values_1, values_2 = _context_tile(
        head_cache_ptr, cache_block_stride, cache_token_stride, table_ptr, seen, end, element, SIZE, BLOCK_TOKENS
    )
    if PDL:
        gdc_wait()

    q_ptrs = row_ptr + token[:, None] * WIDTH + query_head[:, None] * SIZE + element[None, :]
    q_1, q_2 = _rotated(q_ptrs, cos, sin, has_half, query_norm_ptr, element, eps, HALF, NORM)
    largest = tl.full([ROWS_PADDED], -float("inf"), tl.float32)
    weights = tl.full([ROWS_PADDED], 0.0, tl.float32)
    v_1 = tl.full([ROWS_PADDED, HALF_PADDED], 0.0, tl.float32)
    v_2 = tl.full([ROWS_PADDED, HALF_PADDED], 0.0, tl.float32)
    if part == 0:
        new = tl.arange(0, TOKENS_PADDED)
        is_new = new < TOKENS
        inside = is_new[:, None] & has_element
        new_ptrs = row_ptr + new[:, None] * WIDTH + (QUERIES + head) * SIZE + element[None, :]
        cos, sin = _angles(rotary_ptr, context + new, inside, element, SIZE)
        new_1, new_2 = _rotated(new_ptrs, cos, sin, inside, key_norm_ptr, element, eps, HALF, NORM)
        new_ptrs += KV_HEADS * SIZE
        new_values_1 = tl.load(new_ptrs, mask=inside, other=0.0)
        new_values_2 = tl.load(new_ptrs + HALF, mask=inside, other=0.0)
        is_written = new < tl.where(takes_part, TOKENS, 0)
        block = tl.load(table_ptr + (context + new) // BLOCK_TOKENS, mask=is_written, other=0).to(tl.int64)
        slot = block * cache_block_stride + (context + new) % BLOCK_TOKENS * cache_token_stride
        slot_ptrs, inside = head_cache_ptr + slot[:, None] + element[None, :], is_written[:, None] & has_element
        tl.store(slot_ptrs, new_1, mask=inside)
        tl.store(slot_ptrs + HALF, new_2, mask=inside)
        tl.store(slot_ptrs + SIZE, new_values_1, mask=inside)
        tl.store(slot_ptrs + SIZE + HALF, new_values_2, mask=inside)
        # A token sees itself and those before it.
        is_seen = is_new[None, :] & (new[None, :] <= token[:, None])
        largest, weights, v_1, v_2 = _attended(
            q_1, q_2, new_1, new_2, new_values_1, new_values_2, is_seen, score_scale, largest, weights, v_1, v_2
        )

    if start < end:
        largest, weights, v_1, v_2 = _attended(
            q_1, q_2, keys_1, keys_2, values_1, values_2, (seen < end)[None, :], score_scale, largest, weights, v_1, v_2
        )
    for first in range(start + TILE_TOKENS, end, TILE_TOKENS):
        seen = first + tl.arange(0, TILE_TOKENS)
        keys_1, keys_2, values_1, values_2 = _context_tile(
            head_cache_ptr, cache_block_stride, cache_token_stride, table_ptr, seen, end, element, SIZE, BLOCK_TOKENS
        )
        largest, weights, v_1, v_2 = _attended(
            q_1, q_2, keys_1, keys_2, values_1, values_2, (seen < end)[None, :], score_scale, largest, weights, v_1, v_2
        )

    if PARTS == 1:
        share = tl.where(takes_part, 1.0 / weights, 0.0)[:, None]
        out_ptrs = out_ptr + (row * TOKENS + token)[:, None] * (QUERIES * SIZE)
        out_ptrs += query_head[:, None] * SIZE + element[None, :]
        tl.store(out_ptrs, (v_1 * share).to(out_ptr.dtype.element_ty), mask=has_half)
        tl.store(out_ptrs + HALF, (v_2 * share).to(out_ptr.dtype.element_ty), mask=has_half)
    else:
        tokens = tl.num_programs(0) * TOKENS
        place = (part * tokens + row * TOKENS + token).to(tl.int64) * QUERIES + query_head
        # No weight says that there is nothing here.
        tl.store(weights_ptr + place, tl.where(takes_part, weights, 0.0), mask=is_query)
        tl.store(largest_ptr + place, largest, mask=is_query)
        values_ptrs = values_ptr + place[:, None] * SIZE + element[None, :]
        tl.store(values_ptrs, v_1, mask=has_half)
        tl.store(values_ptrs + HALF, v_2, mask=has_half)


@triton.jit
def _combine_kernel(
    largest_ptr,  # [PARTS, tokens, queries] float32
    weights_ptr,  # [PARTS, tokens, queries] float32
    values_ptr,  # [PARTS, tokens, queries, SIZE] float32
    out_ptr,  # [tokens, queries * SIZE]
    PARTS: tl.constexpr,
    PARTS_PADDED: tl.constexpr,
    SIZE: tl.constexpr,
    SIZE_PADDED: tl.constexpr,
    PDL: tl.constexpr,
):
    if PDL:
        gdc_launch_dependents()
        gdc_wait()
    one = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    part, element = tl.arange(0, PARTS_PADDED), tl.arange(0, SIZE_PADDED)
    place = part * (tl.num_programs(0) * tl.num_programs(1)) + one
    weights = tl.load(weights_ptr + place, mask=part < PARTS, other=0.0)
    has_weight = weights > 0.0
    # Not infinite: of a row that takes no part there is nothing else, and nobody needs NaN.
    largest = tl.load(largest_ptr + place, mask=has_weight, other=-1e38)
    overall = tl.reduce(largest, 0, _elementwise_max)
    share = tl.where(has_weight, tl.exp(largest - overall), 0.0)
    inside = has_weight[:, None] & (element < SIZE)[None, :]
    values = tl.load(values_ptr + place.to(tl.int64)[:, None] * SIZE + element[None, :], mask=inside, other=0.0)
    total = tl.reduce(share * weights, 0, _sum_combine)
    out = tl.reduce(values * share[:, None], 0, _sum_combine) / tl.where(total > 0.0, total, 1.0)
    tl.store(out_ptr + one * SIZE + element, out.to(out_ptr.dtype.element_ty), mask=element < SIZE)
