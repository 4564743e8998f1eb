"""A draft as vLLM loaded it, for passes of our own kernels (`nightjar_kernels.draft_pass`).

Nothing is copied: the tensors are vLLM's, at the addresses that they stay at.
"""

from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.llama3_rope import Llama3RotaryEmbedding
from vllm.model_executor.models.llama import LlamaForCausalLM
from vllm.model_executor.models.mistral import MistralForCausalLM
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM
from vllm.model_executor.models.qwen3 import Qwen3ForCausalLM

from nightjar_kernels.draft_attention import Heads
from nightjar_kernels.draft_pass import Draft, Layer
from nightjar_kernels.small_linear import Norm

FAMILIES = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
ROTATIONS = (RotaryEmbedding, Llama3RotaryEmbedding)
DTYPES = (torch.bfloat16, torch.float16)


class UnsupportedDraftError(ValueError):
    """A draft that these kernels would compute wrongly: vLLM's own pass is right for it; the message says why."""


def draft_of(model: Any) -> Draft:
    """The weights of a model in `FAMILIES`; UnsupportedDraftError names what is required and what was found."""
    for required, found in _obstacles(model):
        raise UnsupportedDraftError(f"the draft's fused pass: {required} required, found {found}")
    return Draft(
        model.model.embed_tokens.weight,
        [_layer(layer) for layer in model.model.layers],
        _norm(model.model.norm),
        # Behind the vocabulary lies padding.
        model.lm_head.weight[: model.lm_head.org_vocab_size],
    )


def caches_of(model: Any) -> list[torch.Tensor]:
    """Each layer's KV, once vLLM has allocated it; UnsupportedDraftError where it is not kept as it is computed."""
    attentions = [layer.self_attn for layer in model.model.layers]
    dtype = model.lm_head.weight.dtype
    for attention in attentions:
        _check_cache(attention.attn.kv_cache, dtype, attention.num_kv_heads, attention.head_dim)
    return [attention.attn.kv_cache for attention in attentions]


def _check_cache(cache: torch.Tensor, dtype: torch.dtype, heads: int, size: int) -> None:
    if cache.dtype != dtype:
        raise UnsupportedDraftError(f"the draft's fused pass: a KV cache of {dtype} is required, found {cache.dtype}")
    # As FlashAttention has it.
    if cache.dim() != 4 or (cache.shape[1], cache.shape[3], cache.stride(3)) != (heads, 2 * size, 1):
        raise UnsupportedDraftError(
            f"the draft's fused pass: a KV cache of [blocks, {heads}, tokens of a block, {2 * size}], K and V of a "
            f"token adjacent, is required, found shape {tuple(cache.shape)} with strides {cache.stride()}"
        )


def _obstacles(model: Any) -> Iterator[tuple[str, str]]:
    """(what is required, what was found), as far as it can be looked for at all."""
    if type(model) not in FAMILIES:
        yield f"one of {', '.join(one.__name__ for one in FAMILIES)} is", type(model).__name__
        return
    weight = model.lm_head.weight
    if weight.dtype not in DTYPES:
        yield f"weights of one of {', '.join(map(str, DTYPES))} are", str(weight.dtype)
    for layer in model.model.layers:
        yield from _obstacles_of_layer(layer)


def _obstacles_of_layer(layer: Any) -> Iterator[tuple[str, str]]:
    attention, mlp = layer.self_attn, layer.mlp
    for name, owner in (("qkv_proj", attention), ("o_proj", attention), ("gate_up_proj", mlp), ("down_proj", mlp)):
        linear = getattr(owner, name)
        # A LoRA's layer around it has no such method at all.
        method = getattr(linear, "quant_method", None)
        if type(method) is not UnquantizedLinearMethod:
            yield f"{name} without quantisation or LoRA is", type(method or linear).__name__
        elif not linear.weight.is_contiguous():
            yield f"{name} with adjacent inputs is", f"strides {linear.weight.stride()}"
        elif linear.tp_size != 1:
            yield "tensor parallelism of 1 is", str(linear.tp_size)
        elif linear.bias is not None and name != "qkv_proj":
            yield f"{name} without a bias is", "one"
    rotary = attention.rotary_emb
    if type(rotary) not in ROTATIONS or not rotary.is_neox_style or rotary.rotary_dim != attention.head_dim:
        yield "a rotary embedding of whole heads, one half against the other, is", repr(rotary)
    if attention.attn.sliding_window is not None:
        yield "attention to the whole context is", f"a window of {attention.attn.sliding_window} tokens"
    if getattr(attention, "do_llama_4_scaling", False) or getattr(layer, "ada_rms_norm_t_cond", None) is not None:
        yield "a plain decoder layer is", "scaling by position or time"


def _layer(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    query_norm, key_norm = (getattr(attention, name, None) for name in ("q_norm", "k_norm"))
    heads = Heads(
        attention.num_heads,
        attention.num_kv_heads,
        attention.head_dim,
        attention.rotary_emb.cos_sin_cache,
        query_norm and _norm(query_norm),
        key_norm and _norm(key_norm),
    )
    return Layer(
        _norm(layer.input_layernorm),
        attention.qkv_proj.weight,
        attention.qkv_proj.bias,
        heads,
        attention.o_proj.weight,
        _norm(layer.post_attention_layernorm),
        mlp.gate_up_proj.weight,
        mlp.down_proj.weight,
    )


def _norm(norm: Any) -> Norm:
    return Norm(norm.weight, norm.variance_epsilon)
