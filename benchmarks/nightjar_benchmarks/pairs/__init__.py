"""Target and draft models made on the spot: full cost per step, exactly predictable greedy output."""

from nightjar_benchmarks.pairs.make import Pair, load_pair, make_pair
from nightjar_benchmarks.pairs.reference import draft_agrees, expected_continuation, random_prompt
from nightjar_benchmarks.pairs.shapes import DEMO, SHAPES, TINY, ModelShape, PairShape

__all__ = [
    "DEMO",
    "SHAPES",
    "TINY",
    "ModelShape",
    "Pair",
    "PairShape",
    "draft_agrees",
    "expected_continuation",
    "load_pair",
    "make_pair",
    "random_prompt",
]
