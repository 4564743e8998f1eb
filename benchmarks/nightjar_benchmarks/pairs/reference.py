"""What a made pair says, computed without any model."""

import random
from collections.abc import Sequence

from nightjar_benchmarks.pairs.make import Pair


def expected_continuation(pair: Pair, prompt_ids: Sequence[int], count: int) -> list[int]:
    """The `count` tokens that greedy decoding of the target gives after `prompt_ids`.

    ValueError when the prompt is shorter than the context that the first layer looks back on.
    """
    least = pair.shape.context_tokens
    if len(prompt_ids) < least:
        raise ValueError(f"prompt_ids: at least {least} tokens are required, found {len(prompt_ids)}")
    tokens = list(prompt_ids)
    for _ in range(count):
        tokens.append(int(pair.graph.target[_half(pair, tokens), tokens[-1]]))
    return tokens[len(prompt_ids) :]


def draft_agrees(pair: Pair, prompt_ids: Sequence[int], continuation: Sequence[int]) -> list[bool]:
    """Whether the draft, given the true text before it, proposes each token of `continuation`."""
    tokens = list(prompt_ids)
    agrees = []
    for token in continuation:
        agrees.append(int(pair.graph.draft[_half(pair, tokens), tokens[-1]]) == token)
        tokens.append(token)
    return agrees


def random_prompt(pair: Pair, region: int, length: int, seed: int) -> list[int]:
    """Token ids of one region."""
    tokens = [token for token, found in enumerate(pair.graph.regions.tolist()) if found == region]
    if not tokens:
        raise ValueError(f"region: 0 to {len(pair.agreement) - 1} is required, found {region}")
    return random.Random(seed).choices(tokens, k=length)  # noqa: S311 - data, not secrets


def _half(pair: Pair, tokens: Sequence[int]) -> int:
    return int(sum(int(pair.graph.classes[tokens[-1 - offset]]) for offset in pair.shape.offsets) > 0)
