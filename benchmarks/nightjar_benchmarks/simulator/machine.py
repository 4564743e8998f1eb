"""The simulated engine: lays a scenario out as a record, feeds it its trace, steps it."""

from collections.abc import Iterator

import numpy as np

from nightjar_benchmarks.simulator import kernels
from nightjar_benchmarks.simulator.arrivals import Chunk
from nightjar_benchmarks.simulator.scenario import Scenario, acceptance
from nightjar_benchmarks.simulator.state import (
    CHUNK,
    MAX_BATCH,
    MAX_PHASES,
    ROW_FIELDS,
    ROW_SIZE,
    STATE,
    Floats,
    Ints,
    Record,
)

_SPIKE_CHANCE = 0.001
_SPIKE = 4.0
_MOST_STEPS = 1 << 40


class Machine:
    """One run of a scenario. `batch` is the decode batch of the next step; 0 when all is done.

    The noise of steps is drawn from `noise_seed`, by default `seed`; arrivals and content always from `seed`.
    """

    def __init__(self, scenario: Scenario, seed: int, warm_steps: int = 0, noise_seed: int | None = None) -> None:
        self.state: Record = np.zeros(1, STATE)
        self.row: Floats = np.zeros(ROW_SIZE)
        self._trace: Iterator[Chunk] = scenario.trace(seed)
        self._pending: Chunk | None = None
        self.state["rng"] = (seed if noise_seed is None else noise_seed) + 1
        self.state["content_seed"] = seed + 1
        self.state["warm_steps"] = warm_steps
        _lay_out_engine(self.state, scenario)
        _lay_out_conditions(self.state, scenario)
        self.state["more"] = 1
        self.batch = self._settled(kernels.TRACE_NEEDED)
        self.requests = int(self.state["requests"][0])

    def advance(self, gamma: int) -> list[float]:
        """Run one step with `gamma` to draft; its report, laid out as state.StepRow."""
        self.batch = kernels.advance(self.state, self.row, gamma)
        if self.batch <= 0:
            self.batch = self._settled(self.batch)
            self.row[ROW_FIELDS - 1] = self.state["requests"][0]
        row: list[float] = self.row.tolist()
        return row

    def follow(self, gammas: Ints, *, by_requests: bool = False, most_steps: int = _MOST_STEPS) -> None:
        """Run by a table γ[phase, decode batch or scheduled requests]."""
        while self.batch > 0 and most_steps > 0:
            before = int(self.state["step"][0])
            code = kernels.follow(self.state, self.row, gammas, int(by_requests), most_steps)
            self.batch = self._settled(code) if code <= 0 else code
            most_steps -= int(self.state["step"][0]) - before

    def _settled(self, code: int) -> int:
        """Give the engine more of the trace while it asks for it."""
        while code == kernels.TRACE_NEEDED:
            self._refill()
            code = kernels.begin(self.state)
        if code == kernels.POOL_TOO_SMALL:
            raise ValueError("a KV pool that holds the longest request is required; found a request that fills it")
        return max(code, 0)

    def _refill(self) -> None:
        """Requests that wait move to the front, as many new ones as fit follow."""
        state = self.state
        admitted, known = int(state["admitted"][0]), int(state["known"][0])
        kept = known - admitted
        if kept > CHUNK - CHUNK // 4:
            raise ValueError(f"at most {CHUNK - CHUNK // 4} waiting requests are modelled; lower the load")
        chunk = next(self._trace, None)
        if chunk is None:
            state["more"] = 0
            return
        fields = {
            "arrival": chunk.arrival,
            "prompt": chunk.prompt,
            "output": chunk.output,
            "region_of": chunk.region,
        }
        for name, values in fields.items():
            array = state[name][0]
            array[:kept] = array[admitted:known].copy()
            array[kept : kept + len(values)] = values
        state["arrived"] -= admitted
        state["admitted"] = 0
        state["known"] = kept + len(chunk.arrival)


def _lay_out_engine(state: Record, scenario: Scenario) -> None:
    engine, times = scenario.engine, scenario.times
    values = {
        "gamma_max": engine.gamma_max,
        "max_batch": engine.max_batch,
        "token_budget": engine.token_budget,
        "block_tokens": engine.block_tokens,
        "catch_up_budget": engine.catch_up_tokens,
        "verify_capacity": engine.verify_capacity,
        "forward": times.forward,
        "draft": times.draft,
        "by_tokens": times.by_tokens,
        "catch_up_start_s": times.catch_up_start_s,
        "catch_up_token_s": times.catch_up_token_s,
        "kv_s": times.kv_s,
        "draft_kv_s": times.draft_kv_s,
        "base_context": times.base_context,
        "host_s": times.host_s,
        "noise": times.noise,
        "spike_chance": _SPIKE_CHANCE,
        "spike": _SPIKE,
        "free_blocks": engine.blocks,
        "total_blocks": engine.blocks,
        "free_slots": MAX_BATCH,
        "free_slot": np.arange(MAX_BATCH)[::-1],
    }
    elastic = scenario.elastic
    if elastic is not None:
        values |= {
            "elastic": 1,
            "draft_blocks": elastic.draft_blocks,
            "tau_low": elastic.tau_low,
            "persist_steps": elastic.persist_steps,
            "dwell_s": elastic.dwell_s,
            "expand_s": elastic.expand_s,
            "squeeze_s": elastic.squeeze_s,
        }
    for name, value in values.items():
        state[name] = value


def _lay_out_conditions(state: Record, scenario: Scenario) -> None:
    if len(scenario.conditions) > MAX_PHASES:
        raise ValueError(f"at most {MAX_PHASES} conditions are modelled, found {len(scenario.conditions)}")
    state["phases"] = len(scenario.conditions)
    state["accept"] = acceptance()
    state["half_context"] = scenario.half_context
    for index, condition in enumerate(scenario.conditions):
        state["phase_start"][0, index] = condition.start
        state["phase_forward"][0, index] = condition.forward
        state["phase_draft"][0, index] = condition.draft
        for region in range(len(scenario.mix)):
            state["phase_acceptance"][0, index, region] = condition.acceptance_of(region)
