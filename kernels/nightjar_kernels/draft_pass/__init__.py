"""A pass of a dense draft over the newest tokens of a small batch, in five kernels a layer or six.

It reads and writes what vLLM's pass does, from `draft_inputs.Inputs` to `draft_inputs.Best`, so that for each size of
a batch either can be captured. Nothing here depends on numbers that only the device knows: it can be captured as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from nightjar_kernels.draft_attention import Heads, Paged, attend
from nightjar_kernels.draft_inputs import Best
from nightjar_kernels.greedy_head import best_of_head
from nightjar_kernels.small_linear import Norm, linear_add, norm_gate_up, norm_linear
from nightjar_kernels.tiles import DEFAULT, Tiles


@dataclass(frozen=True)
class Layer:
    """A decoder layer's weights; matrices are [outputs, inputs]."""

    attention_norm: Norm
    qkv: torch.Tensor
    """all of Q, then K, then V"""
    qkv_bias: torch.Tensor | None
    heads: Heads
    attention_out: torch.Tensor
    mlp_norm: Norm
    gate_up: torch.Tensor
    """all of the gate first"""
    down: torch.Tensor

    def tensors(self) -> list[torch.Tensor]:
        """What a pass reads of it."""
        norms = [self.attention_norm, self.mlp_norm, self.heads.query_norm, self.heads.key_norm]
        matrices = [self.qkv, self.attention_out, self.gate_up, self.down]
        return [norm.weight for norm in norms if norm] + matrices + ([] if self.qkv_bias is None else [self.qkv_bias])


@dataclass(frozen=True)
class Draft:
    """A dense decoder's weights."""

    embedding: torch.Tensor
    """[vocabulary, hidden]"""
    layers: Sequence[Layer]
    norm: Norm
    head: torch.Tensor
    """[vocabulary, hidden], without padding"""

    def bytes_read(self) -> int:
        """Of weights, by a pass; of the embedding it reads a row a token."""
        tensors = [self.norm.weight, self.head, *(tensor for layer in self.layers for tensor in layer.tensors())]
        return sum(tensor.nbytes for tensor in tensors)


def run(
    draft: Draft,
    ids: torch.Tensor,
    caches: Sequence[torch.Tensor],
    paged: Paged,
    *,
    tokens: int,
    parts: int,
    tiles: Tiles = DEFAULT,
) -> Best:
    """What may follow each row's last token; the KV of the tokens read goes into the caches.

    ids: int32 [rows * tokens], row by row; their positions are the last before the end of each row
    caches: of each layer, see `draft_attention.attend`
    tokens: new ones of each row, two in a first pass and then one
    parts: see `draft_attention.parts_of`
    tiles: the GPU's, see `tiles`
    ValueError where there are more tokens than these kernels are for (`small_linear.MOST_TOKENS`)
    """
    x = F.embedding(ids, draft.embedding)
    for layer, cache in zip(draft.layers, caches, strict=True):
        qkv = norm_linear(x, layer.attention_norm, layer.qkv, layer.qkv_bias, tiles)
        attended = attend(qkv, layer.heads, cache, paged, tokens=tokens, parts=parts, tiles=tiles)
        x = linear_add(attended, layer.attention_out, x, tiles)
        x = linear_add(norm_gate_up(x, layer.mlp_norm, layer.gate_up, tiles), layer.down, x, tiles)
    return best_of_head(x[tokens - 1 :: tokens], draft.norm, draft.head, tiles)
