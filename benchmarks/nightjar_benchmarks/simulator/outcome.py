"""What a run gave: throughput, latency, and the same for its steps after the warm-up."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nightjar_benchmarks.simulator.scenario import Metric
from nightjar_benchmarks.simulator.state import Record

# As in kernels: bin = 16 · ln(seconds / 0.1 ms).
_SHORTEST = 1e-4
_BINS_PER_E = 16.0


@dataclass(frozen=True)
class Sums:
    """Of all steps, or of those after the warm-up.

    `seconds` the engine worked, `in_system` and `decoding` request-seconds, `tokens` given out.
    """

    seconds: float
    in_system: float
    decoding: float
    tokens: int
    steps: int

    @property
    def throughput(self) -> float:
        """Output tokens per second of work."""
        return self.tokens / self.seconds if self.seconds else math.nan

    @property
    def latency_per_token(self) -> float:
        """Mean seconds a request spends per token, waiting and prompt included (Little's law)."""
        return self.in_system / self.tokens if self.tokens else math.nan

    @property
    def loss(self) -> float:
        """The paper's: step seconds · batch / tokens."""
        return self.decoding / self.tokens if self.tokens else math.nan


@dataclass(frozen=True)
class Outcome:
    """One run; seconds unless said."""

    all: Sums
    warm: Sums
    phases: tuple[Sums, ...]
    warm_phases: tuple[Sums, ...]
    finished: int
    preemptions: int
    switches: int
    expansions: int
    ttft_mean: float
    ttft_p50: float
    ttft_p99: float
    latency_p50: float
    latency_p99: float
    simulated_seconds: float
    policy_seconds: float
    wall_seconds: float

    def score(self, metric: Metric, *, warm: bool = False) -> float:
        """More is better: tokens per second, or tokens per second of a request's time."""
        sums = self.warm if warm else self.all
        if metric == "throughput":
            return sums.throughput
        if metric == "latency":
            return 1 / sums.latency_per_token
        phases = [phase for phase in (self.warm_phases if warm else self.phases) if phase.tokens]
        return math.exp(-sum(math.log(phase.latency_per_token) for phase in phases) / len(phases))


def outcome(state: Record, policy_seconds: float, wall_seconds: float) -> Outcome:
    first = state[0]
    phases = int(first["phases"])
    return Outcome(
        all=_sums(state, 0, slice(None)),
        warm=_sums(state, 1, slice(None)),
        phases=tuple(_sums(state, 0, slice(index, index + 1)) for index in range(phases)),
        warm_phases=tuple(_sums(state, 1, slice(index, index + 1)) for index in range(phases)),
        finished=int(first["finished"]),
        preemptions=int(first["preemptions"]),
        switches=int(first["switches"]),
        expansions=int(first["expansions"]),
        ttft_mean=float(first["first_token_sum"]) / max(1, int(first["first_token"].sum())),
        ttft_p50=_quantile(first["first_token"], 0.5),
        ttft_p99=_quantile(first["first_token"], 0.99),
        latency_p50=_quantile(first["latency"], 0.5),
        latency_p99=_quantile(first["latency"], 0.99),
        simulated_seconds=float(first["now"]),
        policy_seconds=policy_seconds,
        wall_seconds=wall_seconds,
    )


def _sums(state: Record, half: int, phases: slice) -> Sums:
    def total(name: str) -> float:
        return float(state[name][0, half, phases].sum())

    return Sums(total("seconds"), total("in_system"), total("decoding"), int(total("tokens")), int(total("steps")))


def _quantile(histogram: Sequence[int], share: float) -> float:
    counts = np.asarray(histogram)
    if not counts.sum():
        return math.nan
    index = int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
    return _SHORTEST * math.exp((index + 0.5) / _BINS_PER_E)
