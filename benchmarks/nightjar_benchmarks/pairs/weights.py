"""Weights that cost a full forward pass and say exactly what the token graph says.

The residual stream of a position holds a random unit embedding of its token and three features: the
token's class, a constant, and the context, which starts at 0. All projections back into the stream are
zero, so every GEMM runs and changes nothing, with one exception: three heads of the first layer. Their
queries and keys come from the constant alone; rotary phases make each score peak at one offset, where
the head reads the class. The context becomes the classes' sum, so the next token depends on KV entries
written long ago, and a wrong one shows. Row v of the LM head is the sum of the embeddings of the tokens
that lead to v, plus the half of v on the context feature.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nightjar_benchmarks.pairs.graph import TokenGraph
from nightjar_benchmarks.pairs.shapes import ModelShape

ROPE_THETA = 500.0  # low: with the amplitudes below no two of 8,192 positions are hard to tell apart
_CLASS, _CONSTANT, _CONTEXT = -3, -2, -1  # feature dimensions of the residual stream
_FEATURES = 3
_PEAK = 160.0  # score at the offset; anywhere else it is lower by 20 or more, so the softmax is one-hot
_CONTEXT_STEP = 0.5  # what one class adds to the context feature
_HALF_STEP = 0.35  # what one class adds to a logit, where the successor's embedding gives 1
_FILL_STD = 0.02

Bits = NDArray[np.uint16]  # bfloat16 as its bits; numpy has no such type


def bf16(values: NDArray[np.float32]) -> Bits:
    """Round to the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def tensors(
    shape: ModelShape,
    graph: TokenGraph,
    successors: NDArray[np.int32],
    offsets: Sequence[int],
    rng: np.random.Generator,
) -> Iterator[tuple[str, Bits]]:
    """All parameters by their Hugging Face names. Those that only cost time share one array of bits.

    ValueError when `shape.hidden` is too small to keep the vocabulary's tokens apart.
    """
    embedding = embeddings(graph, shape.hidden, rng)
    head = lm_head(embedding, graph, successors)
    check_margin(embedding, head, graph, successors)
    yield "model.embed_tokens.weight", bf16(embedding)
    yield "model.norm.weight", bf16(np.ones(shape.hidden, np.float32))
    yield "lm_head.weight", bf16(head)
    fill = _filler(shape, rng)
    for layer in range(shape.layers):
        yield from _layer(shape, layer, offsets, fill)


def embeddings(graph: TokenGraph, hidden: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Shape (vocabulary, hidden). All rows have the same norm, so features survive RMSNorm unchanged."""
    table = np.zeros((len(graph.classes), hidden), np.float32)
    directions = rng.standard_normal((len(table), hidden - _FEATURES), np.float32)
    table[:, :-_FEATURES] = directions / np.linalg.norm(directions, axis=1, keepdims=True)
    table[:, _CLASS] = graph.classes
    table[:, _CONSTANT] = 1
    return table


def lm_head(embedding: NDArray[np.float32], graph: TokenGraph, successors: NDArray[np.int32]) -> NDArray[np.float32]:
    """Shape (vocabulary, hidden)."""
    head = np.zeros_like(embedding)
    for half in (0, 1):
        np.add.at(head[:, :-_FEATURES], successors[half], embedding[:, :-_FEATURES])
    head[:, _CONTEXT] = np.where(graph.halves < 0, 0, 2 * graph.halves - 1) * (_HALF_STEP / _CONTEXT_STEP)
    return head


def check_margin(
    embedding: NDArray[np.float32],
    head: NDArray[np.float32],
    graph: TokenGraph,
    successors: NDArray[np.int32],
    sample: int = 512,
) -> None:
    """Refuse a table whose best logit is less than 15 % above the second, by up to `sample` tokens."""
    tokens = np.unique(np.linspace(0, len(head) - 1, sample).astype(int))
    states = embedding[tokens].copy()
    for half, context in ((0, -3), (0, -1), (1, 1), (1, 3)):
        states[:, _CONTEXT] = context * _CONTEXT_STEP
        logits = states @ head.T
        rows = np.arange(len(tokens))
        best = logits[rows, successors[half, tokens]].copy()
        logits[rows, successors[half, tokens]] = -np.inf
        margin = float(((best - logits.max(axis=1)) / best).min())
        if margin < 0.15:
            raise ValueError(
                f"hidden: logits 15 % apart are required so that rounding never changes a token, found"
                f" {margin:.0%} with {embedding.shape[1]} dimensions for {len(graph.classes)} tokens;"
                f" raise hidden or lower vocab_size"
            )


def _filler(shape: ModelShape, rng: np.random.Generator) -> Callable[[int, int], Bits]:
    largest = shape.hidden * max(shape.intermediate, shape.heads * shape.head_dim)
    noise = bf16(rng.standard_normal(largest, np.float32) * np.float32(_FILL_STD))
    return lambda rows, columns: noise[: rows * columns].reshape(rows, columns)


def _layer(
    shape: ModelShape, layer: int, offsets: Sequence[int], fill: Callable[[int, int], Bits]
) -> Iterator[tuple[str, Bits]]:
    prefix = f"model.layers.{layer}."
    ones = bf16(np.ones(shape.hidden, np.float32))
    yield prefix + "input_layernorm.weight", ones
    yield prefix + "post_attention_layernorm.weight", ones
    yield prefix + "mlp.gate_proj.weight", fill(shape.intermediate, shape.hidden)
    yield prefix + "mlp.up_proj.weight", fill(shape.intermediate, shape.hidden)
    yield prefix + "mlp.down_proj.weight", np.zeros((shape.hidden, shape.intermediate), np.uint16)
    query, key, value, output = _context_heads(shape, offsets) if layer == 0 else _idle_heads(shape, fill)
    yield prefix + "self_attn.q_proj.weight", query
    yield prefix + "self_attn.k_proj.weight", key
    yield prefix + "self_attn.v_proj.weight", value
    yield prefix + "self_attn.o_proj.weight", output


def _idle_heads(shape: ModelShape, fill: Callable[[int, int], Bits]) -> tuple[Bits, Bits, Bits, Bits]:
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return (
        fill(width, shape.hidden),
        fill(kv_width, shape.hidden),
        fill(kv_width, shape.hidden),
        np.zeros((shape.hidden, width), np.uint16),
    )


def _context_heads(shape: ModelShape, offsets: Sequence[int]) -> tuple[Bits, Bits, Bits, Bits]:
    """Every KV head holds the same key and the class in its first value, so any grouping of heads works."""
    dim, pairs = shape.head_dim, shape.head_dim // 2
    frequency = ROPE_THETA ** (-np.arange(pairs) / pairs)
    # Amplitudes fall with the frequency: fast phases tell neighbours apart, slow ones distant positions.
    amplitude = np.sqrt(_PEAK * np.sqrt(dim) * frequency / frequency.sum())
    feature = np.sqrt(shape.hidden / 3)  # a feature of 1 after RMSNorm, whose input has squared norm 3
    query = np.zeros((shape.heads, dim, shape.hidden), np.float32)
    key = np.zeros((shape.kv_heads, dim, shape.hidden), np.float32)
    value = np.zeros_like(key)
    output = np.zeros((shape.hidden, shape.heads, dim), np.float32)
    key[:, :pairs, _CONSTANT] = amplitude / feature
    value[:, 0, _CLASS] = 1 / feature
    for head, offset in enumerate(offsets):
        # Rotary embedding turns pair (i, i + dim / 2) by position · frequency: start `offset` turns behind.
        query[head, :pairs, _CONSTANT] = amplitude * np.cos(-offset * frequency) / feature
        query[head, pairs:, _CONSTANT] = amplitude * np.sin(-offset * frequency) / feature
        output[_CONTEXT, head, 0] = _CONTEXT_STEP
    return (
        bf16(query.reshape(-1, shape.hidden)),
        bf16(key.reshape(-1, shape.hidden)),
        bf16(value.reshape(-1, shape.hidden)),
        bf16(output.reshape(shape.hidden, -1)),
    )
