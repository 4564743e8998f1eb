"""The specification, in plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nightjar_kernels.small_linear.naive import rms_norm

if TYPE_CHECKING:
    from nightjar_kernels.draft_attention import Heads, Paged


def attend(qkv: torch.Tensor, heads: Heads, cache: torch.Tensor, paged: Paged, *, tokens: int) -> torch.Tensor:
    out = torch.zeros(len(qkv), heads.queries, heads.size, dtype=qkv.dtype)
    for row, seq_len in enumerate(paged.seq_lens.tolist()):
        if seq_len == 0:
            continue
        mine = slice(row * tokens, (row + 1) * tokens)
        positions = torch.arange(seq_len - tokens, seq_len)
        query, key, value = split(qkv[mine], heads, positions)
        blocks, offsets = slots(paged.tables[row], torch.arange(seq_len), cache.shape[2])
        cache[blocks[-tokens:], :, offsets[-tokens:]] = torch.cat([key, value], dim=-1)
        keys, values = cache[blocks, :, offsets].float().split(heads.size, dim=-1)
        seen = torch.arange(seq_len) <= positions[:, None]
        out[mine] = attention(query, keys, values, seen).to(qkv.dtype)
    return out.flatten(1)


def split(qkv: torch.Tensor, heads: Heads, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Q, K and V as they are attended with: [tokens, heads, size]."""
    by_head = qkv.unflatten(-1, (-1, heads.size))
    query, key, value = by_head.split([heads.queries, heads.kv, heads.kv], dim=1)
    if heads.query_norm is not None and heads.key_norm is not None:
        query, key = rms_norm(query, heads.query_norm), rms_norm(key, heads.key_norm)
    return rotate(query, heads.rotary[positions]), rotate(key, heads.rotary[positions]), value


def rotate(x: torch.Tensor, rotary: torch.Tensor) -> torch.Tensor:
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = rotary.float()[:, None].chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x.dtype)


def slots(table: torch.Tensor, positions: torch.Tensor, block_tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Where tokens of a request lie: their blocks, and their places in them."""
    return table[positions // block_tokens].long(), positions % block_tokens


def attention(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """query: [tokens, queries, size], keys and values: float32 [context, kv, size], seen: bool [tokens, context]."""
    group = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), keys) * query.shape[-1] ** -0.5
    weights = scores.masked_fill(~seen, -torch.inf).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, values)
