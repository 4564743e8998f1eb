"""What the scheduler decided for a step, until the step's output comes."""

from dataclasses import dataclass


@dataclass(slots=True)
class StepChoice:
    """Times are CLOCK_MONOTONIC, in nanoseconds."""

    started_ns: int
    decode_batch: int = 0
    recomputed_tokens: int = 0
    gamma: int = 0
    plan_version: int = 0
    own_ns: int = 0
    elastic_ns: int = 0
