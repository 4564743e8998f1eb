"""One model as a folder in the Hugging Face format."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import TensorSpec, serialize_file

from nightjar_benchmarks.pairs.graph import END_OF_TEXT
from nightjar_benchmarks.pairs.shapes import ModelShape
from nightjar_benchmarks.pairs.weights import ROPE_THETA, Bits


def write_model(
    folder: Path,
    shape: ModelShape,
    vocab_size: int,
    max_positions: int,
    tensors: Iterable[tuple[str, Bits]],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config(shape, vocab_size, max_positions))
    # No eos_token_id: generation ends at the length that was asked for.
    write_json(folder / "generation_config.json", {"do_sample": False})
    # The file is written from the arrays' own memory: `held` keeps them alive meanwhile.
    held = {name: np.ascontiguousarray(bits) for name, bits in tensors}
    weights_file = folder / "model.safetensors"
    serialize_file(
        {
            name: TensorSpec(dtype="bfloat16", shape=list(bits.shape), data_ptr=bits.ctypes.data, data_len=bits.nbytes)
            for name, bits in held.items()
        },
        weights_file,
        {"format": "pt"},
    )
    weights_file.chmod(0o644)  # safetensors makes files that other users, such as a pod's, cannot read


def config(shape: ModelShape, vocab_size: int, max_positions: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": max_positions,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "use_cache": True,
        "bos_token_id": END_OF_TEXT,
        "eos_token_id": END_OF_TEXT,
        "dtype": "bfloat16",
    }


def write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
