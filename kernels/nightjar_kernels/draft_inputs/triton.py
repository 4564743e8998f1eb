"""The Triton kernels."""
# mypy: allow-untyped-defs, allow-incomplete-defs

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from nightjar_kernels.draft_inputs.naive import PART_TOKENS

if TYPE_CHECKING:
    from nightjar_kernels.draft_inputs import Best, Inputs, Requests

TOKENS = 128


def newest_inputs(rows: torch.Tensor, requests: Requests, out: Inputs) -> None:
    _newest_inputs_kernel[(len(rows),)](
        rows,
        requests.computed,
        requests.tokens,
        requests.tokens.stride(0),
        requests.newest,
        out.ids,
        out.positions,
        out.seq_lens,
        num_warps=1,
    )


def unread_inputs(
    rows: torch.Tensor,
    unread: torch.Tensor,
    starts: torch.Tensor,
    requests: Requests,
    out: Inputs,
    real: torch.Tensor,
    longest: int,
) -> None:
    _unread_inputs_kernel[(len(rows), triton.cdiv(max(longest, 1), TOKENS))](
        rows,
        unread,
        starts,
        requests.computed,
        requests.tokens,
        requests.tokens.stride(0),
        out.ids,
        out.positions,
        out.seq_lens,
        real,
        TOKENS=TOKENS,
        num_warps=1,
    )


def best_of_parts(logits: torch.Tensor, out: Best) -> None:
    rows, vocab_size = logits.shape
    _best_of_parts_kernel[(rows, triton.cdiv(vocab_size, PART_TOKENS))](
        logits,
        logits.stride(0),
        vocab_size,
        out.logits,
        out.ids,
        out.ids.stride(0),
        PART_TOKENS=PART_TOKENS,
        num_warps=4,
    )


def advance(
    best: Best,
    read: Inputs,
    drafts: torch.Tensor,
    columns: torch.Tensor,
    following: Inputs,
    context: int,
    *,
    first: bool,
) -> None:
    rows, parts = best.ids.shape
    _advance_kernel[(rows,)](
        best.logits,
        best.ids,
        best.ids.stride(0),
        parts,
        read.positions,
        read.seq_lens,
        drafts,
        drafts.stride(0),
        drafts.shape[1],
        columns,
        following.ids,
        following.positions,
        following.seq_lens,
        context,
        PARTS=triton.next_power_of_2(parts),
        FIRST=first,
        num_warps=1,
    )


@triton.jit
def _newest_inputs_kernel(
    rows_ptr,  # [rows] int64
    computed_ptr,  # [slots] int32
    tokens_ptr,  # [slots, longest] int32
    tokens_stride,
    newest_ptr,  # [slots] int64
    ids_ptr,  # [2 * rows] int32
    positions_ptr,  # [2 * rows] int64
    seq_lens_ptr,  # [rows] int32
):
    row = tl.program_id(0)
    slot = tl.load(rows_ptr + row)
    if slot >= 0:
        computed = tl.load(computed_ptr + slot)
        tl.store(ids_ptr + 2 * row, tl.load(tokens_ptr + slot * tokens_stride + computed - 1))
        tl.store(ids_ptr + 2 * row + 1, tl.load(newest_ptr + slot).to(tl.int32))
        tl.store(positions_ptr + 2 * row, (computed - 1).to(tl.int64))
        tl.store(positions_ptr + 2 * row + 1, computed.to(tl.int64))
        tl.store(seq_lens_ptr + row, computed + 1)
    else:
        nothing = slot * 0
        tl.store(ids_ptr + 2 * row, nothing.to(tl.int32))
        tl.store(ids_ptr + 2 * row + 1, nothing.to(tl.int32))
        tl.store(positions_ptr + 2 * row, nothing)
        tl.store(positions_ptr + 2 * row + 1, nothing)
        tl.store(seq_lens_ptr + row, nothing.to(tl.int32))


@triton.jit
def _unread_inputs_kernel(
    rows_ptr,  # [rows] int64
    unread_ptr,  # [rows] int32
    starts_ptr,  # [rows + 1] int32
    computed_ptr,  # [slots] int32
    tokens_ptr,  # [slots, longest] int32
    tokens_stride,
    ids_ptr,  # [tokens] int32
    positions_ptr,  # [tokens] int64
    seq_lens_ptr,  # [rows] int32
    real_ptr,  # [tokens] bool
    TOKENS: tl.constexpr,
):
    row = tl.program_id(0)
    slot = tl.load(rows_ptr + row)
    if slot >= 0:
        begin = tl.load(starts_ptr + row)
        count = tl.load(starts_ptr + row + 1) - begin
        computed = tl.load(computed_ptr + slot)
        first = tl.maximum(computed - tl.load(unread_ptr + row), 0)
        offsets = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
        inside = offsets < count
        positions = first + offsets
        real = positions < computed
        ids = tl.load(tokens_ptr + slot * tokens_stride + positions, mask=inside & real, other=0)
        tl.store(ids_ptr + begin + offsets, ids, mask=inside)
        tl.store(positions_ptr + begin + offsets, tl.where(real, positions, 0).to(tl.int64), mask=inside)
        tl.store(real_ptr + begin + offsets, real, mask=inside)
        if tl.program_id(1) == 0:
            tl.store(seq_lens_ptr + row, first + count)
    else:
        tl.store(seq_lens_ptr + row, (slot * 0).to(tl.int32))


@triton.jit
def _better(logit, id, other_logit, other_id):  # noqa: A002 - of a token
    keep = (logit > other_logit) | ((logit == other_logit) & (id <= other_id))
    return tl.where(keep, logit, other_logit), tl.where(keep, id, other_id)


@triton.jit
def _best_of_parts_kernel(
    logits_ptr,  # [rows, vocabulary]
    logits_stride,
    vocab_size,
    best_logits_ptr,  # [rows, parts] float32
    best_ids_ptr,  # [rows, parts] int32
    best_stride,
    PART_TOKENS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    ids = part * PART_TOKENS + tl.arange(0, PART_TOKENS)
    logits = tl.load(logits_ptr + row * logits_stride + ids, mask=ids < vocab_size, other=-float("inf")).to(tl.float32)
    best, best_id = tl.reduce((logits, ids), 0, _better)
    tl.store(best_logits_ptr + row * best_stride + part, best)
    # With nothing but NaN the best can be behind the vocabulary, and a token it has to be even then.
    tl.store(best_ids_ptr + row * best_stride + part, tl.minimum(best_id, vocab_size - 1))


@triton.jit
def _advance_kernel(
    best_logits_ptr,  # [rows, parts] float32
    best_ids_ptr,  # [rows, parts] int32
    best_stride,
    parts,
    read_positions_ptr,  # [2 * rows] int64 in the first pass, then [rows]
    read_seq_lens_ptr,  # [rows] int32
    drafts_ptr,  # [rows, longest length] int64
    drafts_stride,
    longest,
    columns_ptr,  # [rows] int32
    ids_ptr,  # [rows] int32
    positions_ptr,  # [rows] int64
    seq_lens_ptr,  # [rows] int32
    context,
    PARTS: tl.constexpr,
    FIRST: tl.constexpr,
):
    row = tl.program_id(0)
    part = tl.arange(0, PARTS)
    logits = tl.load(best_logits_ptr + row * best_stride + part, mask=part < parts, other=-float("inf"))
    ids = tl.load(best_ids_ptr + row * best_stride + part, mask=part < parts, other=0)
    _, draft = tl.reduce((logits, ids), 0, _better)
    seq_len = tl.load(read_seq_lens_ptr + row)
    if FIRST:
        column = seq_len * 0
        position = tl.load(read_positions_ptr + 2 * row + 1)
    else:
        column = tl.load(columns_ptr + row)
        position = tl.load(read_positions_ptr + row)
    tl.store(drafts_ptr + row * drafts_stride + column, draft.to(tl.int64), mask=column < longest)
    tl.store(columns_ptr + row, column + 1)
    tl.store(ids_ptr + row, draft)
    tl.store(positions_ptr + row, tl.minimum(position + 1, context - 1))
    tl.store(seq_lens_ptr + row, tl.where(seq_len > 0, tl.minimum(seq_len + 1, context), 0))
