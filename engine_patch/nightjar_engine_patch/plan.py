"""The plan as the scheduler reads it: a speculative length in one array look-up, never a call."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from nightjar_api.engine.v1 import engine_pb2
from nightjar_engine_patch.errors import PlanError

# A schedule is a look-ahead of one reporting interval or two, not a program.
MOST_SCHEDULED_STEPS = 10_000


@dataclass
class CompiledPlan:
    """`next_gamma` walks each bucket's schedule once and then holds."""

    version: int
    expires_ns: int
    bucket_of_batch: tuple[int, ...]
    schedules: tuple[tuple[int, ...], ...]
    holds: tuple[int, ...]
    most: int = field(init=False)
    """The longest length in it."""
    _positions: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.most = max(*self.holds, 0, *(gamma for schedule in self.schedules for gamma in schedule))
        self._positions = [0] * len(self.holds)

    @property
    def longest(self) -> int:
        """The longest length that a step may still get."""
        rests = (schedule[position:] for schedule, position in zip(self.schedules, self._positions, strict=True))
        return max(*self.holds, 0, *(gamma for rest in rests for gamma in rest))

    def next_gamma(self, decode_batch: int) -> int:
        """The length for a step with `decode_batch` decoding requests, which counts as one visit."""
        bucket = self.bucket_of_batch[decode_batch]
        position = self._positions[bucket]
        schedule = self.schedules[bucket]
        if position < len(schedule):
            self._positions[bucket] = position + 1
            return schedule[position]
        return self.holds[bucket]


def compile_plan(plan: engine_pb2.Plan, *, gamma_max: int, max_batch: int, now_ns: int) -> CompiledPlan:
    """Check a plan and lay it out for batches 0 … max_batch; PlanError names the field that is wrong."""
    if plan.ttl_ms < 1:
        raise PlanError(f"plan.ttl_ms: at least 1 is required, found {plan.ttl_ms}")
    bounds = [bucket.max_batch for bucket in plan.buckets]
    if not bounds or bounds[0] < 1 or any(a >= b for a, b in pairwise(bounds)):
        raise PlanError(f"plan.buckets: growing max_batch from 1 are required, found {bounds}")
    for index, bucket in enumerate(plan.buckets):
        _check_bucket(f"plan.buckets[{index}]", bucket, gamma_max)
    return CompiledPlan(
        version=plan.version,
        expires_ns=now_ns + plan.ttl_ms * 1_000_000,
        bucket_of_batch=_bucket_of_batch(bounds, max_batch),
        schedules=tuple(
            tuple(segment.gamma for segment in bucket.schedule for _ in range(segment.steps)) for bucket in plan.buckets
        ),
        holds=tuple(bucket.hold_gamma for bucket in plan.buckets),
    )


def _check_bucket(where: str, bucket: engine_pb2.BucketPlan, gamma_max: int) -> None:
    lengths = [(f"{where}.hold_gamma", bucket.hold_gamma)]
    lengths += [(f"{where}.schedule[{i}].gamma", segment.gamma) for i, segment in enumerate(bucket.schedule)]
    for name, gamma in lengths:
        if gamma > gamma_max:
            raise PlanError(f"{name}: at most num_speculative_tokens ({gamma_max}) is required, found {gamma}")
    steps = sum(segment.steps for segment in bucket.schedule)
    if steps > MOST_SCHEDULED_STEPS:
        raise PlanError(f"{where}.schedule: at most {MOST_SCHEDULED_STEPS} steps are required, found {steps}")


def _bucket_of_batch(bounds: Sequence[int], max_batch: int) -> tuple[int, ...]:
    buckets = []
    bucket = 0
    for batch in range(max_batch + 1):
        if batch > bounds[bucket] and bucket + 1 < len(bounds):
            bucket += 1
        buckets.append(bucket)
    return tuple(buckets)
