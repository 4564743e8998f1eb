"""Making a pair, and reading one back."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from nightjar_benchmarks.pairs import graph, tokenizer, weights
from nightjar_benchmarks.pairs.files import write_json, write_model
from nightjar_benchmarks.pairs.graph import TokenGraph
from nightjar_benchmarks.pairs.shapes import ModelShape, PairShape

_FORMAT = 2  # grows when the same arguments give other files
_RECORD = "pair.json"


@dataclass(frozen=True)
class Pair:
    """A made target and draft, and what is needed to predict their output."""

    folder: Path
    shape: PairShape
    agreement: tuple[float, ...]
    seed: int

    @property
    def target(self) -> Path:
        return self.folder / "target"

    @property
    def draft(self) -> Path:
        return self.folder / "draft"

    @cached_property
    def graph(self) -> TokenGraph:
        return graph.build(self.shape.vocab_size, self.agreement, self.seed)


def make_pair(folder: Path, shape: PairShape, agreement: Sequence[float], seed: int) -> Pair:
    """Write `folder/target` and `folder/draft`; a folder that already holds this very pair is kept.

    `agreement` has one share (0…1) per region of the vocabulary: how often the draft is right there.
    ValueError when the shape cannot carry the construction or a share is out of range.
    """
    pair = Pair(folder, shape, tuple(float(share) for share in agreement), seed)
    record = folder / _RECORD
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) == _describe(pair):
        return pair
    tokens = pair.graph  # refuses bad arguments before anything is removed
    for stale in (pair.target, pair.draft):
        shutil.rmtree(stale, ignore_errors=True)
    record.unlink(missing_ok=True)
    words = tokenizer.train(shape.vocab_size)
    for stream, path, model, successors in (
        (1, pair.target, shape.target, tokens.target),
        (2, pair.draft, shape.draft, tokens.draft),
    ):
        parameters = weights.tensors(model, tokens, successors, shape.offsets, np.random.default_rng([seed, stream]))
        write_model(path, model, shape.vocab_size, shape.max_positions, parameters)
        tokenizer.write_tokenizer(path, words, shape.max_positions)
    write_json(record, _describe(pair))  # last: a folder with a record is complete
    return pair


def load_pair(folder: Path) -> Pair:
    """The pair that `make_pair` left in `folder`; FileNotFoundError or ValueError when there is none."""
    record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
    if record["format"] != _FORMAT:
        raise ValueError(f"{folder / _RECORD}: format {_FORMAT} is required, found {record['format']}")
    shape = record["shape"]
    models = {name: ModelShape(**shape[name]) for name in ("target", "draft")}
    return Pair(
        folder,
        PairShape(shape["vocab_size"], max_positions=shape["max_positions"], offsets=tuple(shape["offsets"]), **models),
        tuple(record["agreement"]),
        record["seed"],
    )


def _describe(pair: Pair) -> dict[str, object]:
    return {
        "format": _FORMAT,
        "shape": asdict(pair.shape) | {"offsets": list(pair.shape.offsets)},
        "agreement": list(pair.agreement),
        "seed": pair.seed,
    }
