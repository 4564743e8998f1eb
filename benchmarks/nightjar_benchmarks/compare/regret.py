"""Cumulative regret of ADA-BINGREEDY on stationary losses, one context: how it grows with the visits.

The losses are a bandit's textbook case: four lengths whose mean losses differ by a tenth or more, with noise.
Regret is counted in mean losses, so noise adds none. The exponent is the slope of log regret over log visits.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.ada_bingreedy import AdaBinGreedy, Fidelity
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.space import Space

Coin = Literal["1/b", "1/sqrt(b)"]

_LOSSES = (1.0, 0.9, 0.8, 1.1)
_NOISE = 0.2
_SECONDS = 0.01
_FIRST_POWER = 8
_BOOTSTRAPS = 400


@dataclass(frozen=True)
class Exponent:
    """Slope with its 95 % interval over seeds, and the mean regret at each number of visits."""

    coin: Coin
    slope: float
    low: float
    high: float
    visits: tuple[int, ...]
    regret: tuple[float, ...]
    switches_per_bin: float


def exponent(coin: Coin, seeds: int, last_power: int) -> Exponent:
    """Over visits 2^8 … 2^last_power."""
    runs, switches = zip(*(regrets(coin, seed, last_power) for seed in range(seeds)), strict=True)
    visits = tuple(2**power for power in range(_FIRST_POWER, last_power + 1))
    rng = Random(0)  # noqa: S311 - resampling
    slopes = sorted(_slope(visits, _mean(rng.choices(runs, k=len(runs)))) for _ in range(_BOOTSTRAPS))
    mean = _mean(runs)
    return Exponent(
        coin=coin,
        slope=_slope(visits, mean),
        low=slopes[round(0.025 * _BOOTSTRAPS)],
        high=slopes[round(0.975 * _BOOTSTRAPS) - 1],
        visits=visits,
        regret=tuple(mean),
        switches_per_bin=sum(switches) / len(switches),
    )


def regrets(coin: Coin, seed: int, last_power: int) -> tuple[list[float], float]:
    """Cumulative regret after 2^8, 2^9, … visits, and changes of arm per bin."""
    rng = Random(seed)  # noqa: S311 - noise
    policy = AdaBinGreedy(Space.of(len(_LOSSES) - 1, [8]), Random(seed + 1), Fidelity(coin=coin))  # noqa: S311
    best, total, previous, switches = min(_LOSSES), 0.0, 0, 0
    found = []
    for visit in range(1, 2**last_power + 1):
        gamma = policy.predict(Context(4, previous, 0.0)).gamma
        loss = _LOSSES[gamma] * max(0.05, 1 + rng.gauss(0, _NOISE))
        policy.learn(Round(visit, visit, 4, gamma, 0.0, _SECONDS * loss, 4))
        total += _LOSSES[gamma] - best
        switches += gamma != previous
        previous = gamma
        if visit >= 2**_FIRST_POWER and visit & (visit - 1) == 0:
            found.append(total)
    return found, switches / sum(1 for _ in _bins(2**last_power))


def _bins(visits: int) -> Iterator[int]:
    """Lengths of the bins that so many visits fall into."""
    block, used = 1, 0
    while used < visits:
        length = max(1, math.isqrt(2 ** (block - 1)))
        for _ in range(math.ceil(2 ** (block - 1) / length)):
            yield length
            used += length
        block += 1


def _mean(runs: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(values) for values in zip(*runs, strict=True)]


def _slope(visits: Sequence[int], regret: Sequence[float]) -> float:
    xs, ys = [math.log(v) for v in visits], [math.log(r) for r in regret]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    covariance = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return covariance / sum((x - x_mean) ** 2 for x in xs)
