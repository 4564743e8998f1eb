"""A draft's attention over vLLM's paged KV cache: QK norm, rotary embedding, writing of KV and attending in one kernel.

A row is a request of the batch and reads its newest tokens, one or two, which lie behind one another and at its end.
A norm of Q and K goes over whole heads, of which a program of the matrix before has only a part: so it is done here.
"""

from dataclasses import dataclass

import torch

from nightjar_kernels.draft_attention import naive
from nightjar_kernels.small_linear import Norm
from nightjar_kernels.tiles import DEFAULT, Tiles


@dataclass(frozen=True)
class Heads:
    """What a layer's attention computes with."""

    queries: int
    kv: int
    """heads of K and V; `queries` is a multiple"""
    size: int
    """elements of a head, even; a score is scaled by the root of it"""
    rotary: torch.Tensor
    """[positions, size]: cosines of all pairs, then sines; pair i is elements i and i + size / 2"""
    query_norm: Norm | None = None
    key_norm: Norm | None = None


@dataclass(frozen=True)
class Paged:
    """Where the rows' KV lies."""

    tables: torch.Tensor
    """int32 [rows, blocks]: the blocks of each row's context, in order"""
    seq_lens: torch.Tensor
    """int32 [rows]: tokens to attend to, the new ones included; 0 for a row that takes no part"""


def attend(
    qkv: torch.Tensor,
    heads: Heads,
    cache: torch.Tensor,
    paged: Paged,
    *,
    tokens: int,
    parts: int,
    tiles: Tiles = DEFAULT,
) -> torch.Tensor:
    """Attention of every row's new tokens to its context and, causally, to themselves; their KV goes into the cache.

    qkv: [rows * tokens, (queries + 2 * kv) * size], row by row; all else that is read, the kernel before this one may
        not have written, as this one begins to read it while that runs
    cache: [blocks, kv, tokens of a block, 2 * size], K and V of a token adjacent, the other dimensions in any order:
        a layer's cache as vLLM's FlashAttention backend has it
    tokens: new ones of each row
    parts: programs that share a row's context, see `parts_of`; the result does not depend on it but for rounding
    tiles: the GPU's, see `nightjar_kernels.tiles`
    Returns [rows * tokens, queries * size]; zeros for a row that takes no part, of which nothing is written.
    """
    rows = len(paged.seq_lens)
    if len(qkv) != rows * tokens or cache.stride(-1) != 1 or cache.shape[-1] != 2 * heads.size:
        raise ValueError(
            f"{tokens} tokens of each of {rows} rows and a cache of K and V, adjacent, of {heads.size} elements each"
            f" are required, found {len(qkv)} tokens and a cache of shape {tuple(cache.shape)} and strides"
            f" {cache.stride()}"
        )
    if not qkv.is_cuda:
        return naive.attend(qkv, heads, cache, paged, tokens=tokens)
    from nightjar_kernels.draft_attention import triton

    return triton.attend(qkv, heads, cache, paged, tokens=tokens, parts=parts, tiles=tiles)


def parts_of(rows: int, kv_heads: int, longest: int, multiprocessors: int, tiles: Tiles = DEFAULT) -> int:
    """Into how many parts to split the contexts of a batch.

    As many as give each multiprocessor of the device a part, but none that is shorter than it is worth.

    longest: the longest context to expect, in tokens
    """
    return max(1, min(multiprocessors // (rows * kv_heads), -(-longest // tiles.attention.part)))
