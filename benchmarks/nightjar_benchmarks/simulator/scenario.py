"""What is simulated: an engine, its step times, a load, and what changes meanwhile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nightjar_benchmarks.simulator.arrivals import Chunk
from nightjar_benchmarks.simulator.lengths import POSITION_DECAY, REGIONS
from nightjar_benchmarks.simulator.state import MAX_GAMMA, MAX_REGIONS, Floats
from nightjar_benchmarks.simulator.step_times import StepTimes

# `latency_by_phase`: the phases are experiments of their own, so their geometric mean counts.
Metric = Literal["throughput", "latency", "latency_by_phase"]


@dataclass(frozen=True)
class Engine:
    """vLLM's limits: requests and tokens of a step, KV blocks; the draft's catch-up tokens a step.

    `verify_capacity`: most drafts verified in a step, chosen by their probability (TETRIS); 0 is no limit.
    """

    gamma_max: int = 5
    max_batch: int = 256
    token_budget: int = 2048
    blocks: int = 4112
    block_tokens: int = 16
    catch_up_tokens: int = 512
    verify_capacity: int = 0


@dataclass(frozen=True)
class Elastic:
    """The draft's room as KV blocks, and the memory policy's settings."""

    draft_blocks: int
    tau_low: int
    persist_steps: int = 3
    dwell_s: float = 1.0
    expand_s: float = 0.144
    squeeze_s: float = 0.012


@dataclass(frozen=True)
class Condition:
    """What holds from `start` seconds on: factors on acceptance, by region or for all, and on times."""

    start: float = 0.0
    acceptance: float | tuple[float, ...] = 1.0
    forward: float = 1.0
    draft: float = 1.0

    def acceptance_of(self, region: int) -> float:
        return self.acceptance[region] if isinstance(self.acceptance, tuple) else self.acceptance


@dataclass(frozen=True)
class Scenario:
    """`trace(seed)` gives the requests; `half_context` halves acceptance with so many tokens (0: never).

    `mix` is each region's share of output tokens; the means are of the trace, for the oracle and the profile.
    """

    name: str
    times: StepTimes
    trace: Callable[[int], Iterator[Chunk]]
    mix: tuple[float, ...]
    prompt_per_output: float
    metric: Metric
    engine: Engine = Engine()
    elastic: Elastic | None = None
    conditions: tuple[Condition, ...] = (Condition(),)
    half_context: float = 0.0
    mean_context: float = 0.0
    mean_output: float = 100.0

    @property
    def drifts(self) -> bool:
        """Whether acceptance or times change, so that a profile of the start does not hold to the end."""
        return len({replace(condition, start=0.0) for condition in self.conditions}) > 1


def acceptance() -> Floats:
    """The chance that a draft is accepted given those before it, [region, position]."""
    rates = np.zeros((MAX_REGIONS, MAX_GAMMA))
    for region, first in enumerate(REGIONS.values()):
        rates[region] = first * POSITION_DECAY ** np.arange(MAX_GAMMA)
    return rates


def tokens(scenario: Scenario, condition: Condition) -> Floats:
    """Expected tokens per request and round, for γ = 0 … gamma_max, over the mix of content.

    Rounds are what regions share, not tokens: content that is accepted less needs more rounds.
    """
    scale = 2.0 ** (-scenario.mean_context / scenario.half_context) if scenario.half_context else 1.0
    gammas = scenario.engine.gamma_max + 1
    per_region = np.ones((len(scenario.mix), gammas))
    for region in range(len(scenario.mix)):
        rates = np.minimum(1.0, acceptance()[region] * condition.acceptance_of(region) * scale)
        per_region[region, 1:] += np.cumsum(np.cumprod(rates))[: gammas - 1]
    share = np.array(scenario.mix)[:, None]
    mean: Floats = 1.0 / (share / per_region).sum(axis=0)
    return mean
