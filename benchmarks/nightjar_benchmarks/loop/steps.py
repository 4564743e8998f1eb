"""What step reports say: the cost of our code in a step, and acceptance after a return from γ = 0.

A bare engine with the tiny pair obeys one plan after another; the benchmark reads its reports.
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nightjar_api.engine.v1.engine_pb2 import BucketPlan, Segment, StepReport
from nightjar_benchmarks.load.replay import PhaseRun, replay
from nightjar_benchmarks.load.trace import Phase, requests_of
from nightjar_benchmarks.loop.engine import BareEngine, bare_engine
from nightjar_benchmarks.loop.service import GAMMA, service
from nightjar_benchmarks.pairs import TINY, Pair, make_pair
from nightjar_benchmarks.records import Figure

_STEP_BATCH = 64
_COST_STEPS = 250
_RECOVERY_BATCH = 8
_STEPS_ON, _STEPS_OFF = 150, 150
_EVERY_BATCH = 2**16
_LAST_REPORTS_SECONDS = 30


def measure(workdir: Path) -> dict[str, Figure]:
    """acceptance_recovery and step_cost_*; RuntimeError when requests failed or reports were lost."""
    pair = make_pair(workdir / "pair-tiny", TINY, (0.9,), 0)
    with bare_engine(service("steps", pair, "bfloat16", _STEP_BATCH, "off"), workdir / "steps") as engine:
        figures = {**_recovery(engine, pair), **_cost(engine, pair)}
        if engine.dropped:
            raise RuntimeError(f"every step's report is required, {engine.dropped} were lost")
    return figures


def _recovery(engine: BareEngine, pair: Pair) -> dict[str, Figure]:
    schedule = [Segment(gamma=GAMMA, steps=_STEPS_ON), Segment(gamma=0, steps=_STEPS_OFF)]
    engine.plan(BucketPlan(max_batch=_EVERY_BATCH, schedule=schedule, hold_gamma=GAMMA))
    # Enough tokens for all steps on and off, and for as many on again.
    tokens = _STEPS_ON * (GAMMA + 1) * 2 + _STEPS_OFF
    reports = _serve(engine, pair, Phase("recovery", _RECOVERY_BATCH, _RECOVERY_BATCH, 0, (tokens, tokens)))
    before, after = acceptance_around_return(reports)
    return {"acceptance_recovery": Figure(after / before, "×", {"before": before, "after": after})}


def _cost(engine: BareEngine, pair: Pair) -> dict[str, Figure]:
    """The dearer of γ = 0 and γ = 3."""
    costs = {}
    for gamma in (0, GAMMA):
        engine.plan(BucketPlan(max_batch=_EVERY_BATCH, hold_gamma=gamma))
        tokens = _COST_STEPS * (gamma + 1)
        phase = Phase(f"cost {gamma}", _STEP_BATCH, _STEP_BATCH, 0, (tokens, tokens))
        costs[gamma] = overhead_us(_serve(engine, pair, phase), gamma, _STEP_BATCH)
    raw = {f"gamma{gamma}": {"median": cost[0], "p99": cost[1], "steps": cost[2]} for gamma, cost in costs.items()}
    return {
        "step_cost_median_us": Figure(max(cost[0] for cost in costs.values()), "µs", raw),
        "step_cost_p99_us": Figure(max(cost[1] for cost in costs.values()), "µs", raw),
    }


def acceptance_around_return(reports: Sequence[StepReport]) -> tuple[float, float]:
    """Accepted over verified drafts, before γ became 0 and after it was positive again.

    ValueError when the reports have no such return.
    """
    off = [index for index, report in enumerate(reports) if report.decode_batch and report.gamma_drafted == 0]
    before = reports[: off[0]] if off else []
    after = reports[off[-1] :] if off else []
    return _acceptance(before), _acceptance(after)


def overhead_us(reports: Sequence[StepReport], gamma: int, batch: int) -> tuple[float, float, int]:
    """Median and 99th percentile in µs over the steps that drafted `gamma` for `batch` requests, and their count.

    ValueError when there are fewer than 100 such steps.
    """
    costs = [
        report.overhead_ns / 1e3
        for report in reports
        if report.gamma_drafted == gamma and report.decode_batch == batch and not report.prefill_tokens
    ]
    if len(costs) < 100:
        raise ValueError(f"at least 100 steps of {batch} requests at γ = {gamma} are required, found {len(costs)}")
    median, p99 = np.percentile(costs, [50, 99])
    return float(median), float(p99), len(costs)


def _acceptance(reports: Sequence[StepReport]) -> float:
    verified = sum(report.verified_tokens for report in reports)
    if verified < 1000:
        raise ValueError(f"at least 1000 verified drafts on each side of γ = 0 are required, found {verified}")
    return sum(report.accepted_tokens for report in reports) / verified


def _serve(engine: BareEngine, pair: Pair, phase: Phase) -> list[StepReport]:
    """The reports of the steps that served `phase`."""
    seen = len(engine.reports)
    trace = [(phase, requests_of(pair, phase, pair.shape.context_tokens, 0))]
    runs = asyncio.run(replay(engine.openai_url, engine.model, trace, time.monotonic, lambda _: None))
    _refuse_failures(runs)
    tokens = sum(len(record.token_ids) for run in runs for record in run.records)
    return _reports_of(engine, seen, tokens)


def _reports_of(engine: BareEngine, seen: int, tokens: int) -> list[StepReport]:
    """The reports after the first `seen`, once they account for all `tokens`; the last are still on their way."""
    deadline = time.monotonic() + _LAST_REPORTS_SECONDS
    while (reported := sum(report.emitted_tokens for report in engine.reports[seen:])) != tokens:
        if time.monotonic() > deadline:
            raise RuntimeError(f"reports of all {tokens} tokens are required, found {reported}")
        time.sleep(0.05)
    return engine.reports[seen:]


def _refuse_failures(runs: Sequence[PhaseRun]) -> None:
    failed = [record.error for run in runs for record in run.records if record.error is not None]
    if failed:
        raise RuntimeError(f"no failed request is required, found {len(failed)}, the first: {failed[0]}")
