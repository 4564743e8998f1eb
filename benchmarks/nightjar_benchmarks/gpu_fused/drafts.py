"""Drafts for what the made pairs of `gpu_engine` do not show: other families' shapes, and layers that have a say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from nightjar_benchmarks.gpu_engine.pairs import AGREEMENT, BIG
from nightjar_benchmarks.pairs import ModelShape, Pair, PairShape, weights
from nightjar_benchmarks.pairs.files import config, write_json, write_model

# Llama-3.2-1B's, Qwen3-0.6B's, and the draft that everything else is measured with: vocabulary, shape, what else is so.
_LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "tie_word_embeddings": True}
SHAPES: dict[str, tuple[int, ModelShape, dict[str, Any]]] = {
    "llama_1b": (
        128_256,
        ModelShape(hidden=2048, layers=16, heads=32, kv_heads=8, head_dim=64, intermediate=8192),
        {"tie_word_embeddings": True, "rope_parameters": _LLAMA3_ROPE},
    ),
    "qwen3_06b": (
        151_936,
        ModelShape(hidden=1024, layers=28, heads=16, kv_heads=8, head_dim=128, intermediate=3072),
        _QWEN3,
    ),
    "05b": (BIG.vocab_size, BIG.draft, {}),
}

# Of the matrices that the made draft has as zeros: so large that some tokens are other ones, and so small that rounding
# seldom decides which.
_DOWN_STD, _OUT_STD = 0.01, 0.008


def write_shapes(folder: Path, name: str, positions: int) -> tuple[Path, Path]:
    """Configurations alone, of a small target and a draft of `SHAPES`: for engines that make up their weights."""
    vocab_size, shape, also = SHAPES[name]
    target = ModelShape(shape.heads * shape.head_dim, 2, shape.heads, shape.kv_heads, shape.head_dim, 2048)
    for path, made, more in ((folder / "target", target, {}), (folder / "draft", shape, also)):
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "config.json", config(made, vocab_size, positions) | more)
    return folder / "target", folder / "draft"


def write_lively_draft(folder: Path, shape: PairShape) -> Path:
    """A draft whose layers change what it says: the made one, with matrices where it has zeros."""
    pair = Pair(folder, shape, (AGREEMENT,), 0)
    tensors = weights.tensors(shape.draft, pair.graph, pair.graph.draft, shape.offsets, np.random.default_rng([0, 2]))
    write_model(pair.draft, shape.draft, shape.vocab_size, shape.max_positions, _with_a_say(tensors))
    return pair.draft


def _with_a_say(tensors: Iterator[tuple[str, weights.Bits]]) -> Iterator[tuple[str, weights.Bits]]:
    rng = np.random.default_rng(3)
    for name, bits in tensors:
        std = _DOWN_STD if name.endswith("down_proj.weight") else _OUT_STD if name.endswith("o_proj.weight") else 0.0
        if std and not bits.any():
            yield name, weights.bf16(rng.standard_normal(bits.shape, np.float32) * np.float32(std))
        else:
            yield name, bits
