"""Serving a trace: phases one after another, each with a fixed number of requests in flight."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from nightjar_benchmarks.load.client import Clock, RequestRecord, complete
from nightjar_benchmarks.load.trace import Phase, Request


@dataclass(frozen=True)
class PhaseRun:
    """One phase as it was served; times are seconds on the caller's clock."""

    phase: Phase
    start: float
    end: float
    records: list[RequestRecord]


async def replay(
    openai_url: str,
    model: str,
    trace: Sequence[tuple[Phase, Sequence[Request]]],
    clock: Clock,
    on_done: Callable[[RequestRecord], None],
    request_timeout_s: float = 120.0,
) -> list[PhaseRun]:
    """Serve every phase of `trace`; the next begins when the last request of the one before has ended.

    `openai_url` ends in `/v1`. A request that is silent for `request_timeout_s` is recorded as failed.
    """
    most = max(phase.concurrency for phase, _ in trace)
    # Well before vLLM's server hangs up on idle connections, after 5 s: a request sent in that moment would fail.
    limits = httpx.Limits(max_connections=most, max_keepalive_connections=most, keepalive_expiry=2.0)
    async with httpx.AsyncClient(
        base_url=openai_url, timeout=request_timeout_s, limits=limits, trust_env=False
    ) as client:
        return [await _serve(client, model, phase, requests, clock, on_done) for phase, requests in trace]


async def _serve(
    client: httpx.AsyncClient,
    model: str,
    phase: Phase,
    requests: Sequence[Request],
    clock: Clock,
    on_done: Callable[[RequestRecord], None],
) -> PhaseRun:
    waiting = iter(requests)
    records: list[RequestRecord] = []

    async def worker() -> None:
        for request in waiting:  # shared: each worker takes the next request
            record = await complete(client, model, request, phase.name, clock)
            records.append(record)
            on_done(record)

    start = clock()
    async with asyncio.TaskGroup() as group:
        for _ in range(phase.concurrency):
            group.create_task(worker())
    return PhaseRun(phase, start, clock(), records)
