"""When the draft's memory should serve as KV cache: the memory policy, without input or output.

expand   when γ = 0 and fewer than τ_low blocks are free, for `persistSteps` decode steps in a row
squeeze  when nothing waits, and more blocks are free than the draft takes back and τ_low
"""

import math
from dataclasses import dataclass
from enum import StrEnum

from nightjar_api import durations
from nightjar_api.engine.v1.engine_pb2 import (
    DRAFT_RESIDENCY_AWAY,
    DRAFT_RESIDENCY_ON_DEVICE,
    DRAFT_RESIDENCY_UNSPECIFIED,
    DraftResidency,
    ElasticProgress,
    EngineInfo,
    StepReport,
)
from nightjar_api.memory import MemorySpec

# What was refused was refused because of requests, and those change within some steps.
_RETRY_SECONDS = 0.5


class Change(StrEnum):
    """What the engine is asked for."""

    EXPAND = "expand"
    SQUEEZE = "squeeze"


@dataclass(frozen=True, slots=True)
class Done:
    """The latest change that was carried out."""

    change: Change
    at: float
    seconds: float
    moved_blocks: int
    moved_bytes: int


class MemoryPolicy:
    """Times are those of one clock, in seconds."""

    def __init__(self, spec: MemorySpec) -> None:
        self.spec = spec
        self.unsupported_reason: str | None = None
        self.residency: DraftResidency = DRAFT_RESIDENCY_UNSPECIFIED
        self.wanted: Change | None = None
        self.short_steps = 0
        self.refusal: str | None = None
        self.done: Done | None = None
        self._blocks = 0
        self._latest: StepReport | None = None
        self._awaited: DraftResidency | None = None
        self._retry_at = -math.inf

    def connected(self, info: EngineInfo) -> None:
        """Whatever was wanted of another connection is thought over."""
        self.unsupported_reason = info.elastic_unsupported_reason or None
        self.residency = info.draft_residency
        self.wanted = None
        self.refusal = None
        self.short_steps = 0
        self._blocks = info.blocks
        self._latest = None
        self._awaited = None
        self._retry_at = -math.inf

    def observe(self, report: StepReport) -> None:
        if self._awaited not in (None, report.draft_residency):
            # Of a step before the latest change: reports come late.
            return
        self._awaited = None
        self.residency = report.draft_residency
        self._latest = report
        if report.decode_batch == 0:
            # γ was not asked for.
            return
        is_short = report.gamma_drafted == 0 and report.free_blocks < self.low_blocks
        self.short_steps = self.short_steps + 1 if is_short else 0

    @property
    def low_blocks(self) -> int:
        """τ_low in blocks; a share is one of the blocks at the engine's start."""
        low = self.spec.tau_low
        return low if isinstance(low, int) else self._blocks * int(low.removesuffix("%")) // 100

    @property
    def may_speculate(self) -> bool:
        """Whether a length above 0 may be planned."""
        return self.wanted is not Change.EXPAND and self.residency in (
            DRAFT_RESIDENCY_ON_DEVICE,
            # An engine that does not say so has no draft that could be away.
            DRAFT_RESIDENCY_UNSPECIFIED,
        )

    def consider(self, now: float) -> None:
        """Want a change if one is due; it stays wanted until it is done or refused."""
        if self.wanted is None and now >= self._earliest():
            self.wanted = self._useful()

    def seconds_to_change(self, now: float) -> float | None:
        """When a change that is useful already may be made; None while there is none."""
        return None if self.wanted or self._useful() is None else max(0.0, self._earliest() - now)

    def carried_out(self, change: Change, progress: ElasticProgress, now: float) -> None:
        self.residency = self._awaited = progress.draft_residency
        self.wanted = None
        self.refusal = None
        self.short_steps = 0
        # What was reported before says nothing about the room there is now; an idle engine is looked at when it is
        # not any more.
        self._latest = None
        self.done = Done(change, now, progress.elapsed_ns * 1e-9, progress.moved_blocks, progress.moved_bytes)

    def refused(self, reason: str, now: float) -> None:
        self.wanted = None
        self.refusal = reason
        self._retry_at = now + _RETRY_SECONDS

    def _useful(self) -> Change | None:
        latest = self._latest
        if latest is None or self.unsupported_reason is not None:
            return None
        if self.residency == DRAFT_RESIDENCY_ON_DEVICE:
            is_short = self.spec.elastic and self.short_steps >= self.spec.persist_steps
            return Change.EXPAND if is_short else None
        if self.residency == DRAFT_RESIDENCY_AWAY:
            # Switched off, the draft comes back as soon as it can.
            reserve = self.low_blocks if self.spec.elastic else -1
            has_room = latest.free_blocks > latest.total_blocks - self._blocks + reserve
            return Change.SQUEEZE if has_room and latest.waiting == 0 else None
        return None

    def _earliest(self) -> float:
        if self.done is None or not self.spec.elastic:
            return self._retry_at
        return max(self._retry_at, self.done.at + durations.seconds(self.spec.dwell))
