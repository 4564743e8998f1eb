"""The specification, in plain PyTorch: a decoder over whole sequences, without a cache, in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name

from nightjar_kernels.draft_attention.naive import attention, split
from nightjar_kernels.small_linear.naive import Norm, rms_norm

if TYPE_CHECKING:
    from nightjar_kernels.draft_pass import Draft, Layer


def logits(draft: Draft, ids: torch.Tensor) -> torch.Tensor:
    """What may follow each token of one sequence.

    ids: [tokens], from the first of the sequence on; returns float32 [tokens, vocabulary]
    """
    x = draft.embedding[ids].float()
    for layer in draft.layers:
        x = _layer(layer, x)
    return _norm_linear(x, draft.norm, draft.head)


def _layer(layer: Layer, x: torch.Tensor) -> torch.Tensor:
    qkv = _norm_linear(x, layer.attention_norm, layer.qkv)
    if layer.qkv_bias is not None:
        qkv += layer.qkv_bias.float()
    positions = torch.arange(len(x))
    query, key, value = split(qkv, layer.heads, positions)
    attended = attention(query, key.float(), value.float(), positions <= positions[:, None])
    x = x + attended.flatten(1) @ layer.attention_out.float().T
    gate, up = _norm_linear(x, layer.mlp_norm, layer.gate_up).chunk(2, dim=-1)
    return x + (F.silu(gate) * up) @ layer.down.float().T


def _norm_linear(x: torch.Tensor, norm: Norm, weight: torch.Tensor) -> torch.Tensor:
    return rms_norm(x, norm).float() @ weight.float().T
