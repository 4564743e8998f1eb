"""Running the arms: all pods start together and are warmed up; then each phase is served by one after the other.

Machines drift by more within minutes than servers differ, so what is compared is measured side by side.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from nightjar_api.service import NightjarService
from nightjar_benchmarks.demo.scenario import Trace, turns
from nightjar_benchmarks.load.client import RequestRecord
from nightjar_benchmarks.load.replay import PhaseRun, replay
from nightjar_benchmarks.load.trace import Phase, Request
from nightjar_benchmarks.pods import QUIET_SECONDS, MakePod, started
from nightjar_operator.local.pod import Event, LocalPod

_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class ArmRun:
    """One arm as measured; times are seconds of this arm's turns, as if the others had had none."""

    name: str
    start_up_s: float
    phases: list[PhaseRun]
    gammas: list[tuple[float, int]]
    gamma_switches: int


class Watcher:
    """Told what happens to one arm, for a person to see; the methods do nothing here."""

    def event(self, event: Event) -> None:
        """The pod has something to say."""

    def served(self, record: RequestRecord) -> None:
        """A request of the measured trace has ended."""

    def waits(self) -> None:
        """Another arm's turn begins."""


class Stopwatch:
    """Seconds, counted only inside `running`."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._before = 0.0
        self._since: float | None = None

    def __call__(self) -> float:
        return self._before if self._since is None else self._before + self._now() - self._since

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = self._now()
        try:
            yield
        finally:
            self._before = self()
            self._since = None


@dataclass
class _Arm:
    pod: LocalPod
    start_up_s: float
    watcher: Watcher
    clock: Stopwatch = field(default_factory=Stopwatch)
    parts: list[PhaseRun] = field(default_factory=list)
    gammas: list[tuple[float, int]] = field(default_factory=list)
    switches_before: int = 0


def run_arms(
    services: Mapping[str, NightjarService],
    workdir: Path,
    warm_up: Trace,
    trace: Trace,
    watchers: Mapping[str, Watcher],
) -> list[ArmRun]:
    """PodError when a pod does not start or dies; failed requests are in the records."""
    makers = {name: _maker(service, workdir / name, watchers[name]) for name, service in services.items()}
    with started(makers) as pods:
        arms = {name: _Arm(pod, seconds, watchers[name]) for name, (pod, seconds) in pods.items()}
        return asyncio.run(_serve(arms, warm_up, trace))


def _maker(service: NightjarService, workdir: Path, watcher: Watcher) -> MakePod:
    workdir.mkdir(parents=True, exist_ok=True)
    return lambda stop: LocalPod(service, workdir, on_event=watcher.event, stop=stop)


async def _serve(arms: Mapping[str, _Arm], warm_up: Trace, trace: Trace) -> list[ArmRun]:
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        for arm in arms.values():
            await asyncio.sleep(QUIET_SECONDS)
            await replay(arm.pod.openai_url, arm.pod.model, warm_up, time.monotonic, lambda _: None)
            arm.pod.check()
            arm.switches_before = await _switches(client, arm.pod)
            arm.watcher.waits()
        for number, turn in enumerate(turns(trace)):
            # There and back, so that none always comes after the same one.
            for arm in list(arms.values())[:: -1 if number % 2 else 1]:
                await asyncio.sleep(QUIET_SECONDS)
                await _take_turn(arm, turn, client)
                arm.pod.check()
                arm.watcher.waits()
        return [await _measured(name, arm, trace, client) for name, arm in arms.items()]


async def _take_turn(arm: _Arm, turn: tuple[Phase, Sequence[Request]], client: httpx.AsyncClient) -> None:
    with arm.clock.running():
        async with _sampling(client, arm):
            arm.parts += await replay(arm.pod.openai_url, arm.pod.model, [turn], arm.clock, arm.watcher.served)


async def _measured(name: str, arm: _Arm, trace: Trace, client: httpx.AsyncClient) -> ArmRun:
    switches = await _switches(client, arm.pod) - arm.switches_before
    phases = [_joined([part for part in arm.parts if part.phase == phase]) for phase, _ in trace]
    return ArmRun(name, arm.start_up_s, phases, arm.gammas, switches)


def _joined(parts: Sequence[PhaseRun]) -> PhaseRun:
    """One phase from its turns, which follow each other on the arm's clock."""
    records = [record for part in parts for record in part.records]
    return PhaseRun(parts[0].phase, parts[0].start, parts[-1].end, records)


@asynccontextmanager
async def _sampling(client: httpx.AsyncClient, arm: _Arm) -> AsyncIterator[None]:
    """Note γ while the block runs."""
    if arm.pod.status_url is None:
        yield
        return
    sampler = asyncio.create_task(_sample(client, arm.pod.status_url, arm.clock, arm.gammas))
    try:
        yield
    finally:
        sampler.cancel()
        with suppress(asyncio.CancelledError):
            await sampler


async def _sample(
    client: httpx.AsyncClient, status_url: str, clock: Callable[[], float], gammas: list[tuple[float, int]]
) -> None:
    while True:
        # A sample that is lost is a gap in a plot, no reason to stop a measurement.
        with suppress(httpx.HTTPError):
            gamma = (await _status(client, status_url))["speculation"]["gamma"]
            if gamma is not None:
                gammas.append((clock(), gamma))
        await asyncio.sleep(_SAMPLE_SECONDS)


async def _switches(client: httpx.AsyncClient, pod: LocalPod) -> int:
    if pod.status_url is None:
        return 0
    return int((await _status(client, pod.status_url))["speculation"]["switches"]["total"])


async def _status(client: httpx.AsyncClient, status_url: str) -> dict[str, Any]:
    answer = await client.get(status_url)
    answer.raise_for_status()
    document: dict[str, Any] = answer.json()
    return document
