"""Figures about single steps of our policy: recovery after drift, what probes cost, how long a decision takes."""

import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median

import numpy as np

from nightjar_benchmarks.compare.contenders import policy
from nightjar_benchmarks.records import Figure
from nightjar_benchmarks.simulator import driver, oracle
from nightjar_benchmarks.simulator.driver import WARM_STEPS, Log
from nightjar_benchmarks.simulator.machine import Machine
from nightjar_benchmarks.simulator.scenario import Scenario
from nightjar_benchmarks.simulator.state import MAX_BATCH, MAX_PHASES
from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.nightjar import Nightjar
from nightjar_sidecar.policies.protocol import Choice, Context, Decision
from nightjar_sidecar.space import Space

# Recovered: over so many steps the choices cost at most so much more than the best.
_WINDOW = 50
_NEAR = 1.05
_SPEED_STEPS = 100_000


class Watched:
    """Nightjar's policy with a clock on its decisions and its probes' cost as of the warm-up's end."""

    def __init__(self, policy: Nightjar) -> None:
        self._policy = policy
        self.decisions: list[float] = []
        self.probe_seconds_warm: float | None = None
        self.warm_ns = 0
        self.end_ns = 0

    def score(self, context: Context) -> Mapping[int, float]:
        return self._policy.score(context)

    def predict(self, context: Context) -> Choice:
        started = time.perf_counter()
        choice = self._policy.predict(context)
        self.decisions.append(time.perf_counter() - started)
        return choice

    def plan(self, context: Context) -> Decision:
        return self._policy.plan(context)

    def learn(self, round_: Round) -> None:
        self._policy.learn(round_)
        if self.probe_seconds_warm is None and round_.step >= WARM_STEPS:
            self.probe_seconds_warm, self.warm_ns = self._policy.probe_seconds, round_.time_ns
        self.end_ns = round_.time_ns

    def adopt(self, space: Space) -> None:
        self._policy.adopt(space)

    @property
    def exploration_share(self) -> float:
        """Of the time after the warm-up, what probes cost."""
        spent = self._policy.probe_seconds - (self.probe_seconds_warm or 0.0)
        return spent / max(1e-9, (self.end_ns - self.warm_ns) * 1e-9)


def watched(scenario: Scenario, seed: int) -> Watched:
    nightjar = policy("nightjar", scenario, seed)
    if not isinstance(nightjar, Nightjar):
        raise TypeError(f"Nightjar is required, found {type(nightjar).__name__}")
    watching = Watched(nightjar)
    driver.drive(scenario, watching, seed)
    return watching


def exploration_and_speed(scenarios: Sequence[Scenario], seeds: int) -> dict[str, Figure]:
    """`exploration_cost` and `decision_us`, over scenarios and seeds."""
    runs = {f"{s.name}, seed {seed}": watched(s, seed) for s in scenarios for seed in range(seeds)}
    shares = {name: run.exploration_share for name, run in runs.items()}
    decisions = {name: 1e6 * fmean(run.decisions) for name, run in runs.items()}
    medians = {name: 1e6 * median(run.decisions) for name, run in runs.items()}
    return {
        "exploration_cost": Figure(fmean(shares.values()), "share", shares),
        "decision_us": Figure(fmean(decisions.values()), "µs", {"means": decisions, "medians": medians}),
    }


def recovery(scenario: Scenario, seeds: int) -> Figure:
    """Steps from the change of conditions until the choices are near the best again; ada-bingreedy's beside."""
    found = {
        name: [steps_to_recover(scenario, name, seed) for seed in range(seeds)]
        for name in ("nightjar", "ada-bingreedy")
    }
    return Figure(median(found["nightjar"]), "steps", found)


def steps_to_recover(scenario: Scenario, name: str, seed: int) -> int:
    """All steps left when it never does."""
    log = Log()
    driver.drive(scenario, policy(name, scenario, seed), seed, log=log)
    change = int(np.searchsorted(log.now, scenario.conditions[1].start))
    costs = oracle.costs(scenario, scenario.conditions[1])
    batch, gamma = np.array(log.batch[change:]), np.array(log.gamma[change:])
    excess = costs[gamma, batch] / costs[:, batch].min(axis=0)
    means = np.convolve(excess, np.ones(_WINDOW) / _WINDOW, mode="valid")
    near = np.flatnonzero(means <= _NEAR)
    return int(near[0]) + _WINDOW if len(near) else len(excess)


def simulator_speed(scenario: Scenario) -> Figure:
    """Steps a second on one core, by a table and by a policy that does nothing (Python calls included)."""
    table = np.ones((MAX_PHASES, MAX_BATCH + 1), np.int64)
    driver.follow(scenario, table, 0)
    compiled = max(_steps_per_second(scenario, table) for _ in range(3))
    machine = Machine(scenario, 0)
    started, steps = time.perf_counter(), 0
    while machine.batch > 0 and steps < _SPEED_STEPS:
        machine.advance(1)
        steps += 1
    driven = steps / (time.perf_counter() - started)
    return Figure(compiled, "steps/s", {"by a table": compiled, "step by step from Python": driven})


def _steps_per_second(scenario: Scenario, table: "np.typing.NDArray[np.int64]") -> float:
    outcome = driver.follow(scenario, table, 0)
    return outcome.all.steps / outcome.wall_seconds
