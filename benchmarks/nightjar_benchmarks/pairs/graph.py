"""Which token follows which: the language that a made pair speaks.

The vocabulary is cut into regions that no successor leaves, and each region into two halves. Every token
has one successor in each half; the context (see `reference`) chooses the half. The draft has successors
of its own for a share of each region's tokens, so its agreement with the target is known per region.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

END_OF_TEXT = 0  # never produced


@dataclass(frozen=True)
class TokenGraph:
    """Arrays over the vocabulary; successor tables have shape (2, vocabulary), indexed by half and token."""

    classes: NDArray[np.int8]  # -1 or +1: what a token contributes to the choice of a half later on
    halves: NDArray[np.int8]  # 0 or 1; -1 for tokens that are never produced
    regions: NDArray[np.int16]  # -1 for tokens that are never produced
    target: NDArray[np.int32]
    draft: NDArray[np.int32]


def build(vocab_size: int, agreement: Sequence[float], seed: int) -> TokenGraph:
    """One region per entry of `agreement`, each the share of its tokens whose draft successor is right.

    ValueError when an entry is outside 0…1 or a region would have fewer than 8 tokens.
    """
    size = (vocab_size - 1) // max(1, len(agreement)) // 2 * 2
    if not agreement or size < 8:
        raise ValueError(
            f"agreement: 1 to {(vocab_size - 1) // 8} regions are required for a vocabulary"
            f" of {vocab_size}, found {len(agreement)}"
        )
    if any(not 0 <= share <= 1 for share in agreement):
        raise ValueError(f"agreement: shares from 0 to 1 are required, found {list(agreement)}")
    rng = np.random.default_rng([seed, 0])
    graph = _empty(vocab_size, rng)
    for region, share in enumerate(agreement):
        first = 1 + region * size
        _fill_region(graph, region, np.arange(first, first + size), share, rng)
    _admit_strays(graph, rng)
    return graph


def _empty(vocab_size: int, rng: np.random.Generator) -> TokenGraph:
    return TokenGraph(
        classes=rng.choice(np.array([-1, 1], np.int8), vocab_size),
        halves=np.full(vocab_size, -1, np.int8),
        regions=np.full(vocab_size, -1, np.int16),
        target=np.zeros((2, vocab_size), np.int32),
        draft=np.zeros((2, vocab_size), np.int32),
    )


def _fill_region(
    graph: TokenGraph, region: int, tokens: NDArray[np.int64], share: float, rng: np.random.Generator
) -> None:
    halves = rng.permutation(tokens).reshape(2, -1)
    differing = rng.choice(tokens, round((1 - share) * len(tokens)), replace=False)
    graph.regions[tokens] = region
    for half, members in enumerate(halves):
        graph.halves[members] = half
        # Every member gets exactly two predecessors: all tokens are visited about equally often.
        place = np.arange(len(tokens)) // 2
        order = rng.permutation(tokens)
        graph.target[half, order] = members[place]
        graph.draft[half, order] = members[place]
        moved = np.isin(order, differing)
        graph.draft[half, order[moved]] = members[(place[moved] + 1) % len(members)]


def _admit_strays(graph: TokenGraph, rng: np.random.Generator) -> None:
    """Tokens outside every region lead into one, so that any text can be continued."""
    strays = np.flatnonzero(graph.regions < 0)
    for half in (0, 1):
        successors = rng.choice(np.flatnonzero(graph.halves == half), len(strays), replace=False)
        graph.target[half, strays] = successors
        graph.draft[half, strays] = successors
