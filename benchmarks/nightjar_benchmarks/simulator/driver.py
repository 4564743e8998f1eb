"""Runs a policy on a simulated engine; the policy sees rounds and contexts, as in the sidecar."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_benchmarks.simulator.machine import Machine
from nightjar_benchmarks.simulator.outcome import Outcome, outcome
from nightjar_benchmarks.simulator.scenario import Scenario
from nightjar_benchmarks.simulator.state import ROW_FIELDS, Ints, by_position
from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Context, Policy
from nightjar_sidecar.switch_cost import SwitchCost

WARM_STEPS = 2000


@dataclass(slots=True)
class _CatchUp:
    """The part of a step report that SwitchCost reads."""

    stale_tokens: int
    catch_up_tokens: int
    catch_up_ns: int
    gamma_drafted: int


@dataclass
class Log:
    """What was chosen, step by step; for plots and for figures about single steps."""

    now: list[float] = field(default_factory=list)
    batch: list[int] = field(default_factory=list)
    gamma: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


def drive(
    scenario: Scenario,
    policy: Policy,
    seed: int,
    *,
    delay_steps: int = 0,
    log: Log | None = None,
    most_steps: int | None = None,
) -> Outcome:
    """Simulate to the end of the trace, or for `most_steps`.

    The policy learns of a step `delay_steps` after it was done; 0 is a planner inside the engine.
    """
    machine = Machine(scenario, seed, WARM_STEPS)
    cost = SwitchCost()
    late: deque[Round] = deque()
    previous = done = 0
    policy_seconds, started = 0.0, time.perf_counter()
    while machine.batch > 0 and (most_steps is None or done < most_steps):
        batch = machine.batch
        asked = time.perf_counter()
        context = Context(
            batch,
            previous,
            cost.seconds,
            cost.steps,
            cost.seconds_per_token,
            cost.seconds_per_step,
            machine.requests,
        )
        gamma = policy.predict(context).gamma
        policy_seconds += time.perf_counter() - asked
        row = machine.advance(gamma)
        machine.requests = int(row[ROW_FIELDS - 1])
        if log is not None:
            _record(log, row, batch, gamma)
        asked = time.perf_counter()
        previous = gamma
        _observe(cost, row)
        late.append(round_of(row))
        if len(late) > delay_steps:
            policy.learn(late.popleft())
        policy_seconds += time.perf_counter() - asked
        done += 1
    return outcome(machine.state, policy_seconds, time.perf_counter() - started)


def follow(
    scenario: Scenario, gammas: Ints, seed: int, *, by_requests: bool = False, noise_seed: int | None = None
) -> Outcome:
    """Simulate a table γ[phase, decode batch or scheduled requests], which learns nothing."""
    started = time.perf_counter()
    machine = Machine(scenario, seed, WARM_STEPS, noise_seed)
    machine.follow(np.ascontiguousarray(gammas), by_requests=by_requests)
    return outcome(machine.state, 0.0, time.perf_counter() - started)


def round_of(row: Sequence[float]) -> Round:
    """What Attribution makes of the same step's report."""
    gamma = int(row[3])
    verified, accepted = by_position(row, gamma)
    return Round(
        step=int(row[0]),
        time_ns=round(row[1] * 1e9),
        batch=int(row[2]),
        gamma=gamma,
        draft_seconds=row[5],
        forward_seconds=row[6],
        tokens=int(row[7]),
        verified=verified,
        accepted=accepted,
        prefill_tokens=int(row[15]),
        prefill_share=row[8],
        prompt_tokens=int(row[9]),
        recomputed_tokens=int(row[20]),
        catch_up_seconds=row[10],
        host_seconds=0.0,
    )


def _observe(cost: SwitchCost, row: Sequence[float]) -> None:
    report = _CatchUp(int(row[12]), int(row[11]), round(row[10] * 1e9), int(row[13]))
    cost.observe(cast("StepReport", report))


def _record(log: Log, row: Sequence[float], batch: int, gamma: int) -> None:
    log.now.append(row[1])
    log.batch.append(batch)
    log.gamma.append(gamma)
    log.tokens.append(int(row[7]))
