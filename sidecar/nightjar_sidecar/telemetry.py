"""What the sidecar remembers of the engine's reports for people: counts, rates, the latest state."""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Literal

from nightjar_api.engine.v1.engine_pb2 import DraftResidency, StepBatch, StepReport
from nightjar_sidecar.events import Kind
from nightjar_sidecar.policies.acceptance import Acceptance

_RATE_WINDOW_SECONDS = 10.0

Switch = Literal["on", "off", "length"]


class Telemetry:
    """Reports of one engine; `dropped` and `switches` count over all engines since the sidecar's start."""

    def __init__(self) -> None:
        self.acceptance = Acceptance()
        self.positions = 0
        self.latest: StepReport | None = None
        self.dropped = 0
        self.steps = 0
        self.switches: Counter[Switch] = Counter()
        self._dropped_in_call = 0
        self._arrivals: deque[tuple[float, int, int]] = deque()
        """When a batch arrived, its steps and the tokens they gave to requests."""

    def observe_batch(self, batch: StepBatch, now: float) -> None:
        """Count a batch that arrived at `now`."""
        # The engine counts per call of WatchSteps.
        self.dropped += max(0, batch.dropped - self._dropped_in_call)
        self._dropped_in_call = batch.dropped
        self.steps += len(batch.reports)
        self._arrivals.append((now, len(batch.reports), sum(report.emitted_tokens for report in batch.reports)))
        self._forget(now)

    def observe_report(self, report: StepReport) -> None:
        switch = switched(self.latest, report)
        if switch is not None:
            self.switches[switch] += 1
        self.acceptance.learn(report.verified_by_position, report.accepted_by_position, report.time_ns)
        self.positions = max(self.positions, len(report.verified_by_position))
        self.latest = report

    def new_call(self) -> None:
        """WatchSteps was called anew."""
        self._dropped_in_call = 0

    def new_engine(self) -> None:
        """Another engine serves: its steps say nothing about the old one's."""
        self.new_call()
        self.latest = None
        self._arrivals.clear()

    def steps_per_second(self, now: float) -> float:
        self._forget(now)
        return sum(steps for _, steps, _ in self._arrivals) / _RATE_WINDOW_SECONDS

    def tokens_per_second(self, now: float) -> float:
        self._forget(now)
        return sum(tokens for _, _, tokens in self._arrivals) / _RATE_WINDOW_SECONDS

    def _forget(self, now: float) -> None:
        while self._arrivals and self._arrivals[0][0] < now - _RATE_WINDOW_SECONDS:
            self._arrivals.popleft()


def switched(last: StepReport | None, report: StepReport) -> Switch | None:
    """How the speculative length changed between two steps."""
    if last is None or last.gamma_drafted == report.gamma_drafted:
        return None
    if last.gamma_drafted == 0:
        return "on"
    return "off" if report.gamma_drafted == 0 else "length"


_RESIDENCY = {
    DraftResidency.DRAFT_RESIDENCY_ON_DEVICE: "the draft has its memory again",
    DraftResidency.DRAFT_RESIDENCY_LEAVING: "the draft is leaving: its memory goes to the KV cache",
    DraftResidency.DRAFT_RESIDENCY_AWAY: "the draft is away: the KV cache has its memory",
    DraftResidency.DRAFT_RESIDENCY_RETURNING: "the draft is coming back to its memory",
}


def changes(last: StepReport | None, report: StepReport) -> Iterator[tuple[Kind, str]]:
    """What people want to know of the difference between two steps, in words."""
    if last is None:
        return
    if last.gamma_drafted != report.gamma_drafted:
        yield "gamma", f"γ {last.gamma_drafted} → {report.gamma_drafted}"
    # 0: the fallback was in force.
    if last.plan_version and not report.plan_version:
        yield "plan", "no plan in force any more: the engine uses its fallback length"
    if report.plan_version and not last.plan_version:
        yield "plan", "the engine obeys a plan"
    if last.draft_residency != report.draft_residency and report.draft_residency in _RESIDENCY:
        yield "memory", _RESIDENCY[report.draft_residency]
