"""When requests come: a load is a sequence of pieces with a constant rate, Poisson within each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nightjar_benchmarks.simulator.lengths import Dataset
from nightjar_benchmarks.simulator.state import CHUNK, Floats, Ints

_AZURE_PIECES = 24


@dataclass(frozen=True)
class Piece:
    """`requests` requests at `rate` a second."""

    rate: float
    requests: int

    @property
    def seconds(self) -> float:
        return self.requests / self.rate


@dataclass(frozen=True)
class Chunk:
    """Consecutive requests of a trace: arrival in seconds, tokens, region; arrays of one length."""

    arrival: Floats
    prompt: Ints
    output: Ints
    region: Ints


def seconds(load: Sequence[Piece]) -> float:
    return sum(piece.seconds for piece in load)


def poisson(load: Sequence[Piece], dataset: Dataset, seed: int) -> Iterator[Chunk]:
    """The requests of a load, a chunk at a time, so that memory does not grow with the load."""
    rng = np.random.default_rng(seed)
    now = 0.0
    for piece in load:
        left = piece.requests
        while left > 0:
            size = min(left, CHUNK // 4)
            arrival = now + np.cumsum(rng.exponential(1 / piece.rate, size))
            now = float(arrival[-1])
            yield Chunk(arrival, *dataset.draw(rng, size))
            left -= size


def evenly(load: Sequence[Piece], dataset: Dataset, seed: int) -> Iterator[Chunk]:
    """As `poisson`, but at equal intervals, so that a piece ends when its rate says."""
    rng = np.random.default_rng(seed)
    now = 0.0
    for piece in load:
        yield Chunk(now + np.arange(piece.requests) / piece.rate, *dataset.draw(rng, piece.requests))
        now += piece.seconds


def steps(rates: Sequence[float], requests: int) -> list[Piece]:
    """`requests` at each rate in turn."""
    return [Piece(rate, requests) for rate in rates]


def burst_spike(low: float, high: float, requests: int) -> list[Piece]:
    """Quiet, a burst with half of all requests, quiet again."""
    quarter = requests // 4
    return [Piece(low, quarter), Piece(high, requests - 2 * quarter), Piece(low, quarter)]


def high_low_oscillation(low: float, high: float, requests: int, cycles: int) -> list[Piece]:
    """Cycles of as long at `high` as at `low`."""
    per_cycle = requests / cycles
    at_high = round(per_cycle * high / (high + low))
    return [Piece(high, at_high), Piece(low, max(1, round(per_cycle) - at_high))] * cycles


def azure_like(mean: float, requests: int, seed: int) -> list[Piece]:
    """Bursts as in the Azure LLM inference traces: the rate drifts log-normally (assumed: σ 0.8, memory 0.7)."""
    rng = np.random.default_rng((seed, 0xA2))
    level, levels = 0.0, []
    for _ in range(_AZURE_PIECES):
        level = 0.7 * level + float(np.sqrt(1 - 0.7**2) * 0.8 * rng.standard_normal())
        levels.append(level)
    factors = np.exp(levels) / np.exp(levels).mean()
    return [Piece(mean * factor, max(1, round(requests / _AZURE_PIECES * factor))) for factor in factors.tolist()]
