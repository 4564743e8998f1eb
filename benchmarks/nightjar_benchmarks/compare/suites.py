"""Named suites: the scenarios that policies are compared on.

`paper` follows the evaluation of arXiv 2512.22420: two pairs by three data sets, each at five rates in turn
(the paper's 5 … 25 requests a second span 0.2 … 1.0 of its card's capacity) and at saturation, loads that
change, memory that grows, and, which the paper lacks, conditions that drift. Rates are shares of what the
engine can do without a draft, so that a cell means the same on every card.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from nightjar_benchmarks.simulator import arrivals, step_times
from nightjar_benchmarks.simulator.arrivals import Piece
from nightjar_benchmarks.simulator.lengths import ALPACA, DATASETS, DEMO, REGIONS, SHAREGPT, SPECBENCH, Dataset
from nightjar_benchmarks.simulator.machine import Machine
from nightjar_benchmarks.simulator.scenario import Condition, Elastic, Engine, Metric, Scenario
from nightjar_benchmarks.simulator.state import MAX_BATCH, MAX_PHASES

# The KV pools of the paper's runs; the 7B draft's weights are worth 826 blocks there.
_ENGINES = {"7b": Engine(blocks=4112), "13b": Engine(blocks=717), "cpu": Engine(gamma_max=3, max_batch=64)}
_TABLES = {"7b": "h200-7b", "13b": "a100-13b", "cpu": "cpu-2core"}
_RATES = (0.2, 0.4, 0.6, 0.8, 1.0)
# The paper's runs have 480 requests at one rate and take 40 to 65 seconds: at least as many, for at least as long.
_REQUESTS, _SECONDS = 480, 50.0
_SATURATED = 1.5
_CROWD = 8192
_NO_DRAFT = np.zeros((MAX_PHASES, MAX_BATCH + 1), np.int64)
PAPER_CELLS = tuple(f"{pair}-{dataset}" for pair in ("7b", "13b") for dataset in DATASETS)


@cache
def capacity(pair: str, dataset: Dataset) -> float:
    """Requests a second without a draft, counted in the middle of a simulated crowd that came at once.

    Counted, because it cannot be had from means: blocks run short, so requests are sent back and read again.
    """
    crowd = scenario(f"{pair}-{dataset.name}/capacity", pair, dataset, [Piece(1e9, _CROWD)], "throughput")
    machine = Machine(crowd, seed=0)
    began = _seconds_until(machine, _CROWD // 4)
    return (_CROWD // 2) / (_seconds_until(machine, 3 * _CROWD // 4) - began)


def _seconds_until(machine: Machine, finished: int) -> float:
    """Simulated time when so many requests are done."""
    while machine.state["finished"][0] < finished:
        machine.follow(_NO_DRAFT, most_steps=1)
    return float(machine.state["now"][0])


def scenario(name: str, pair: str, dataset: Dataset, load: Sequence[Piece], metric: Metric) -> Scenario:
    """A stationary one; drift and memory are replaced in it."""
    prompt, output = dataset.means()
    pieces = list(load)
    return Scenario(
        name=name,
        times=step_times.load(_TABLES[pair]),
        trace=lambda seed: arrivals.poisson(pieces, dataset, seed),
        mix=tuple(dataset.mix()),
        prompt_per_output=prompt / output,
        metric=metric,
        engine=_ENGINES[pair],
        mean_context=dataset.context(),
        mean_output=output,
    )


@cache
def paper() -> Mapping[str, Scenario]:
    """By name."""
    made = [*_cells(), *_dynamic(), *_offload(), *_drifts(), _surge()]
    return {scenario.name: scenario for scenario in made}


def _pieces(shares: Sequence[float], rate: float, seconds: float) -> list[Piece]:
    return [Piece(share * rate, max(1, round(share * rate * seconds))) for share in shares]


def _run_at(rate: float) -> Piece:
    return Piece(rate, max(_REQUESTS, round(rate * _SECONDS)))


def _cells() -> list[Scenario]:
    made = []
    for pair in ("7b", "13b"):
        for dataset in (ALPACA, SHAREGPT, SPECBENCH):
            rate = capacity(pair, dataset)
            rates = [_run_at(share * rate) for share in _RATES]
            rising = scenario(f"{pair}-{dataset.name}/rates", pair, dataset, rates, "latency_by_phase")
            starts = tuple(Condition(arrivals.seconds(rates[:index])) for index in range(len(rates)))
            made.append(replace(rising, conditions=starts))
            full = [_run_at(_SATURATED * rate)] * 2
            made.append(scenario(f"{pair}-{dataset.name}/full", pair, dataset, full, "throughput"))
    return made


def _dynamic() -> list[Scenario]:
    rate, seconds = capacity("7b", SHAREGPT), 75.0
    requests = round(0.5 * rate * seconds)
    loads = {
        "burst-spike": arrivals.burst_spike(0.2 * rate, 1.2 * rate, requests),
        "oscillation": arrivals.high_low_oscillation(0.15 * rate, 1.05 * rate, requests, 6),
        "azure-like": arrivals.azure_like(0.45 * rate, requests, seed=1),
    }
    return [scenario(f"dynamic/{name}", "7b", SHAREGPT, load, "latency") for name, load in loads.items()]


def _offload() -> list[Scenario]:
    """35 requests a second meet a pool that is too small; the draft's room is lent to it, or not."""
    rate = capacity("7b", SHAREGPT)
    load = _pieces([1.5, 0.3, 1.5, 0.3], rate, 15.0)
    fixed = scenario("offload/fixed-pool", "7b", SHAREGPT, load, "throughput")
    room = Elastic(draft_blocks=826, tau_low=fixed.engine.blocks // 10)
    return [fixed, replace(fixed, name="offload/elastic", elastic=room)]


def _drifts() -> list[Scenario]:
    rate, seconds = capacity("7b", SHAREGPT), 60.0
    load = _pieces([0.6], rate, seconds)
    half = seconds / 2
    changes = {
        "acceptance-halves": Condition(half, acceptance=0.5),
        "content-shifts": Condition(half, acceptance=(1.05, 0.75, 0.35)),
        "draft-slows": Condition(half, draft=3.0),
        "acceptance-recovers": Condition(half, acceptance=1.0),
    }
    made = []
    for name, change in changes.items():
        first = Condition(acceptance=0.4) if name == "acceptance-recovers" else Condition()
        stationary = scenario(f"drift/{name}", "7b", SHAREGPT, load, "latency")
        made.append(replace(stationary, conditions=(first, change)))
    return made


def _surge() -> Scenario:
    """A small engine of long steps: quiet hours, and twice a crowd of another content that comes at once.

    Rounds of the crowd take so long that every one that is tried in vain shows.
    """
    quiet, crowd, lull = Piece(0.25, 12), Piece(64.0, 256), Piece(1 / 90, 1)
    load = [quiet, *(crowd, lull, quiet) * 2]
    surge = scenario("cpu/surge", "cpu", DEMO, load, "latency_by_phase")
    conditions, start = [], 0.0
    for agreement, phase in ((0.9, [quiet]), *((0.5, [crowd, lull]), (0.9, [quiet])) * 2):
        conditions.append(Condition(start, acceptance=agreement / REGIONS["code"]))
        start += arrivals.seconds(phase)
    return replace(surge, trace=lambda seed: arrivals.evenly(load, DEMO, seed), conditions=tuple(conditions))


@cache
def ablation() -> Mapping[str, Scenario]:
    """Where our policy's ingredients are to show what they are worth."""
    wanted = ("7b-sharegpt/rates", "7b-specbench/rates", "13b-alpaca/rates", "7b-specbench/full")
    chosen = {name: one for name, one in paper().items() if name in wanted or name.startswith(("dynamic/", "drift/"))}
    return {name: chosen[name] for name in sorted(chosen)}


SUITES: Mapping[str, Callable[[], Mapping[str, Scenario]]] = {"paper": paper, "ablation": ablation}
