"""How far chance alone moves a score: what a difference between policies has to exceed to mean anything."""

import math
from collections.abc import Mapping
from statistics import median, stdev

from nightjar_benchmarks.records import Figure
from nightjar_benchmarks.simulator import driver, oracle
from nightjar_benchmarks.simulator.scenario import Scenario

_RUNS = 5


def chance(scenarios: Mapping[str, Scenario]) -> Figure:
    """Standard deviation of a score's logarithm over runs of the oracle that differ in the noise of steps only.

    The trace and its content are the same, as they are for all policies that are compared.
    """
    spreads = {name: _spread(scenario) for name, scenario in scenarios.items()}
    return Figure(median(spreads.values()), "share", spreads)


def _spread(scenario: Scenario) -> float:
    gammas = oracle.table(scenario)
    runs = (driver.follow(scenario, gammas, 0, noise_seed=number) for number in range(_RUNS))
    return stdev(math.log(run.score(scenario.metric)) for run in runs)
