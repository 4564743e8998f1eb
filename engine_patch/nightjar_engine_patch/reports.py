"""Step reports: the scheduler keeps what it has at hand, the server's threads count and encode it.

While a step runs in the worker the engine core only waits, so counting then costs no step anything; done by the
scheduler it would cost each of them.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Condition

from nightjar_api.engine.v1 import engine_pb2
from nightjar_engine_patch.step_measure import StepMeasure


@dataclass(slots=True)
class StepRecord:
    """One step. The containers are vLLM's own, which nothing changes after the step."""

    step: int
    time_ns: int
    step_ns: int
    decode_batch: int
    scheduled_tokens: int
    recomputed_tokens: int
    drafts: Mapping[str, Sequence[int]]
    """What was verified, by request."""
    proposed: Collection[str] | None
    """Requests for which that came from the draft, and did not only fill up the batch; None: all."""
    row_of: Mapping[str, int]
    lengths: Sequence[int]
    """Tokens sampled by row, those behind the end of a request included; empty without drafts."""
    emitted: Sequence[Sequence[int]]
    """Tokens given to requests, by row."""
    drafted: tuple[int, int]
    """The step before, and the length it drafted."""
    gamma: int
    measure: StepMeasure
    free_blocks: int
    total_blocks: int
    running: int
    waiting: int
    plan_version: int
    elastic_ns: int
    residency: engine_pb2.DraftResidency
    overhead_ns: int = 0


def to_message(record: StepRecord) -> engine_pb2.StepReport:
    measure = record.measure
    drafts = record.drafts
    # A decoding request has one token and its drafts; the rest is prompt.
    prefill_tokens = record.scheduled_tokens - sum(map(len, drafts.values())) - record.decode_batch
    if record.proposed is not None:
        drafts = {request: drafts[request] for request in drafts.keys() & record.proposed}
    verified, accepted = acceptance(drafts, record.lengths, record.row_of)
    # Also when nothing but filling was verified: it took its time.
    drafted_at_step, gamma_verified = record.drafted if record.drafts else (0, 0)
    return engine_pb2.StepReport(
        step=record.step,
        time_ns=record.time_ns,
        decode_batch=record.decode_batch,
        prefill_tokens=max(prefill_tokens, 0),
        scheduled_tokens=record.scheduled_tokens,
        recomputed_tokens=record.recomputed_tokens,
        gamma_verified=gamma_verified,
        drafted_at_step=drafted_at_step,
        gamma_drafted=record.gamma,
        emitted_tokens=sum(map(len, record.emitted)),
        verified_tokens=sum(verified),
        accepted_tokens=sum(accepted),
        verified_by_position=verified,
        accepted_by_position=accepted,
        forward_ns=forward_ns(record),
        draft_ns=measure.draft_ns,
        catch_up_ns=measure.catch_up_ns,
        step_ns=record.step_ns,
        catch_up_tokens=measure.catch_up_tokens,
        stale_tokens=measure.stale_tokens,
        free_blocks=record.free_blocks,
        total_blocks=record.total_blocks,
        running=record.running,
        waiting=record.waiting,
        draft_residency=record.residency,
        elastic_ns=record.elastic_ns,
        plan_version=record.plan_version,
        overhead_ns=record.overhead_ns,
    )


def forward_ns(record: StepRecord) -> int:
    measure = record.measure
    if measure.forward_ns is not None:
        return measure.forward_ns
    # A synchronous step is the target's unless somebody else had it.
    return record.step_ns - measure.draft_ns - measure.catch_up_ns - record.elastic_ns


def acceptance(
    drafts: Mapping[str, Sequence[int]], lengths: Sequence[int], row_of: Mapping[str, int]
) -> tuple[list[int], list[int]]:
    """Requests that had a draft verified, and accepted, at each position.

    lengths: tokens sampled by row, one more than drafts accepted
    """
    longest = max(map(len, drafts.values()), default=0)
    verified = [0] * longest
    accepted = [0] * longest
    for request, proposed in drafts.items():
        for position in range(len(proposed)):
            verified[position] += 1
        for position in range(min(lengths[row_of[request]] - 1, len(proposed))):
            accepted[position] += 1
    return verified, accepted


class LateTimes:
    """Records whose drafting is timed by the device are kept until the next step tells how long it took."""

    def __init__(self, give: Callable[[StepRecord], None]) -> None:
        self._give = give
        self._kept: StepRecord | None = None

    def append(self, record: StepRecord, *, is_last: bool) -> None:
        """`is_last`: no step will follow soon; what the last one drafted was for nobody, and its time stays 0."""
        kept, self._kept = self._kept, None
        before = record.measure.before
        if kept is not None:
            if before is not None:
                kept.measure.draft_ns, kept.measure.catch_up_ns = before
            self._give(kept)
        if record.measure.forward_ns is None or is_last:
            self._give(record)
        else:
            self._kept = record


class Reports:
    """Two places to read from, for the one that plans and for an observer beside it."""

    def __init__(self, capacity: int) -> None:
        self.planner, self.observer = ReportQueue(capacity), ReportQueue(capacity)

    def append(self, record: StepRecord) -> None:
        self.planner.append(record)
        self.observer.append(record)

    def close(self) -> None:
        self.planner.close()
        self.observer.close()


class ReportQueue:
    """Bounded; appending never waits and, with no reader, costs nothing.

    One reader at a time: a second call to `open` ends the first reader's stream.
    """

    def __init__(self, capacity: int) -> None:
        self._records: deque[StepRecord] = deque(maxlen=capacity)
        self._changed = Condition()
        self._reader = 0
        self._dropped = 0
        self._closed = False

    def append(self, record: StepRecord) -> None:
        """Called by the engine; the lock is held only for the reader's swap, never while it waits or encodes."""
        if self._reader == 0:
            return
        if len(self._records) == self._records.maxlen:
            self._dropped += 1
        self._records.append(record)

    def open(self) -> int:
        """Start reading from here; the number identifies the reader."""
        with self._changed:
            self._reader += 1
            self._records.clear()
            self._dropped = 0
            self._changed.notify_all()
            return self._reader

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self, reader: int, timeout_s: float) -> tuple[list[StepRecord], int] | None:
        """Wait `timeout_s`, then everything recorded and the count of lost records; None when `reader` is done."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._closed or self._reader != reader, timeout_s)
            if done:
                return None
            taken = [self._records.popleft() for _ in range(len(self._records))]
            return taken, self._dropped
