"""What is asked of a server: requests in phases, the same for every server that is compared."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from nightjar_benchmarks.pairs import Pair, random_prompt


@dataclass(frozen=True)
class Phase:
    """`requests` requests, `concurrency` of them at any time (closed loop), over one region of the vocabulary.

    Output lengths are uniform in `output_tokens`, ends included, so that requests do not end all at once.
    """

    name: str
    concurrency: int
    requests: int
    region: int
    output_tokens: tuple[int, int]


@dataclass(frozen=True)
class Request:
    """One completion of exactly `output_tokens` tokens."""

    id: str
    prompt_ids: tuple[int, ...]
    output_tokens: int


def requests_of(pair: Pair, phase: Phase, prompt_tokens: int, seed: int) -> list[Request]:
    """The phase's requests; the same arguments give the same requests."""
    rng = random.Random(f"{seed}/{phase.name}")  # noqa: S311 - data, not secrets
    return [
        Request(
            id=f"{phase.name}-{number:03d}",
            prompt_ids=tuple(random_prompt(pair, phase.region, prompt_tokens, rng.getrandbits(32))),
            output_tokens=rng.randint(*phase.output_tokens),
        )
        for number in range(phase.requests)
    ]


def count(phases: Sequence[Phase]) -> int:
    return sum(phase.requests for phase in phases)
