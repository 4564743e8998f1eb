"""Policies by name, each with the way it is run: a compiled table, or the sidecar's class step by step."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from random import Random

import numpy as np

from nightjar_api.gamma_table import Entry
from nightjar_benchmarks.simulator import driver, oracle
from nightjar_benchmarks.simulator.outcome import Outcome
from nightjar_benchmarks.simulator.scenario import Scenario, tokens
from nightjar_benchmarks.simulator.state import MAX_BATCH, MAX_PHASES, Ints
from nightjar_benchmarks.simulator.step_times import StepTimes
from nightjar_sidecar.policies import static_table
from nightjar_sidecar.policies.ada_bingreedy import AdaBinGreedy
from nightjar_sidecar.policies.banditspec import BanditSpecExp3, BanditSpecUcb
from nightjar_sidecar.policies.dsd import Dsd
from nightjar_sidecar.policies.linear import LinearTs, LinUcb
from nightjar_sidecar.policies.nightjar import ALL, Ingredients, Nightjar
from nightjar_sidecar.policies.protocol import Policy
from nightjar_sidecar.policies.static_table import StaticTable
from nightjar_sidecar.space import Space

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
# Drafts that TETRIS verifies at most in a step.
_TETRIS_CAPACITY = 256
_TETRIS_GAMMA = 3
FIXED = (1, 2, 3, 5)

# Our policy with one ingredient left out.
_WITHOUT: Mapping[str, Ingredients] = {
    f"without-{field.name.replace('_', '-')}": replace(ALL, **{field.name: False}) for field in fields(Ingredients)
}

Run = Callable[[Scenario, int], Outcome]


@dataclass(frozen=True)
class Profile:
    """What start-up profiling would measure: the table's own times."""

    times: StepTimes

    def draft(self, gamma: int, batch: int) -> float:
        return float(self.times.draft[gamma, batch])

    def forward(self, gamma: int, batch: int) -> float:
        return float(self.times.forward[gamma, batch]) + self.times.host_s


def space(scenario: Scenario) -> Space:
    return Space.of(scenario.engine.gamma_max, BUCKETS)


def policy(name: str, scenario: Scenario, seed: int) -> Policy:
    """KeyError for a name that is no policy class."""
    rng = Random(f"{name}/{seed}")  # noqa: S311 - exploration, no secret
    makers: Mapping[str, Callable[[], Policy]] = {
        "nightjar": lambda: Nightjar(space(scenario)),
        "ada-bingreedy": lambda: AdaBinGreedy(space(scenario), rng),
        "dsd": lambda: Dsd(space(scenario), Profile(scenario.times)),
        "banditspec-ucb": lambda: BanditSpecUcb(space(scenario)),
        "banditspec-exp3": lambda: BanditSpecExp3(space(scenario), rng),
        "linucb": lambda: LinUcb(space(scenario)),
        "linear-ts": lambda: LinearTs(space(scenario), rng),
        "static-table": lambda: StaticTable(space(scenario), profiled_table(scenario)),
    }
    without = _WITHOUT.get(name)
    return Nightjar(space(scenario), without) if without is not None else makers[name]()


def profiled_table(scenario: Scenario) -> tuple[Entry, ...]:
    """The static table that perfect profiling of the scenario's first phase gives."""
    costs = oracle.costs(scenario, scenario.conditions[0])
    got = tokens(scenario, scenario.conditions[0])
    return static_table.optimal(lambda gamma, batch: float(costs[gamma, batch] * got[gamma]), got.tolist(), MAX_BATCH)


def _fixed(gamma: int, capacity: int = 0) -> Run:
    def run(scenario: Scenario, seed: int) -> Outcome:
        engine = replace(scenario.engine, verify_capacity=capacity)
        return driver.follow(replace(scenario, engine=engine), _everywhere(gamma), seed)

    return run


def _everywhere(gamma: int) -> Ints:
    return np.full((MAX_PHASES, MAX_BATCH + 1), gamma, np.int64)


def _oracle(scenario: Scenario, seed: int) -> Outcome:
    return driver.follow(scenario, oracle.table(scenario), seed)


def _static(scenario: Scenario, seed: int) -> Outcome:
    looked_up = StaticTable(space(scenario), profiled_table(scenario))
    gammas = np.array([looked_up.gamma(max(1, requests)) for requests in range(MAX_BATCH + 1)], np.int64)
    return driver.follow(scenario, np.tile(gammas, (MAX_PHASES, 1)), seed, by_requests=True)


def _driven(name: str) -> Run:
    return lambda scenario, seed: driver.drive(scenario, policy(name, scenario, seed), seed)


CONTENDERS: Mapping[str, Run] = {
    **{name: _driven(name) for name in _WITHOUT},
    "oracle": _oracle,
    "nightjar": _driven("nightjar"),
    "off": _fixed(0),
    **{f"fixed-{gamma}": _fixed(gamma) for gamma in FIXED},
    "static-table": _static,
    "tetris": _fixed(_TETRIS_GAMMA, _TETRIS_CAPACITY),
    **{
        name: _driven(name)
        for name in ("ada-bingreedy", "dsd", "banditspec-ucb", "banditspec-exp3", "linucb", "linear-ts")
    },
}

ABLATION = ("oracle", "nightjar", *_WITHOUT)
COMPARED = tuple(name for name in CONTENDERS if name not in _WITHOUT)
