"""Made pairs of real sizes, without tokenizers: prompts are token ids, and training 150,000 words takes minutes."""

from pathlib import Path

import numpy as np

from nightjar_benchmarks.pairs import ModelShape, Pair, PairShape, weights
from nightjar_benchmarks.pairs.files import config, write_json, write_model

# Qwen2.5-7B and -0.5B but for their biases.
BIG = PairShape(
    vocab_size=152_064,
    target=ModelShape(hidden=3584, layers=28, heads=28, kv_heads=4, head_dim=128, intermediate=18944),
    draft=ModelShape(hidden=896, layers=24, heads=14, kv_heads=2, head_dim=64, intermediate=4864),
)
# For what is checked and not timed.
SMALL = PairShape(
    vocab_size=8192,
    target=ModelShape(hidden=1024, layers=4, heads=8, kv_heads=2, head_dim=128, intermediate=2816),
    draft=ModelShape(hidden=512, layers=2, heads=8, kv_heads=2, head_dim=64, intermediate=1024),
)
# So often right, a draft gives about 1.8 tokens a step with one draft and 2.8 with three.
AGREEMENT = 0.77


def write_pair(folder: Path, shape: PairShape) -> Pair:
    pair = Pair(folder, shape, (AGREEMENT,), 0)
    tokens = pair.graph
    for stream, path, model, successors in (
        (1, pair.target, shape.target, tokens.target),
        (2, pair.draft, shape.draft, tokens.draft),
    ):
        parameters = weights.tensors(model, tokens, successors, shape.offsets, np.random.default_rng([0, stream]))
        write_model(path, model, shape.vocab_size, shape.max_positions, parameters)
    return pair


def write_shape(folder: Path, shape: PairShape) -> Pair:
    """Configurations alone, for engines that make up their weights (`load_format: dummy`): where it counts how long
    something takes and not what it says, and 16 GB take a minute and a half to write.
    """
    pair = Pair(folder, shape, (AGREEMENT,), 0)
    for path, model in ((pair.target, shape.target), (pair.draft, shape.draft)):
        path.mkdir(parents=True, exist_ok=True)
        write_json(path / "config.json", config(model, shape.vocab_size, shape.max_positions))
    return pair
