"""The engine's state as one record, so that a compiled step takes one argument, and what a step reports."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MAX_BATCH = 512
MAX_GAMMA = 8
MAX_TOKENS = 8192
MAX_REGIONS = 8
MAX_PHASES = 32
CHUNK = 131072
HISTOGRAM = 256

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Record = npt.NDArray[np.void]
# One element of a Record, as compiled code sees it.
State = Any

_SLOTS = (MAX_BATCH,)

STATE = np.dtype(
    [
        # What the engine is.
        ("gamma_max", "i8"),
        ("max_batch", "i8"),
        ("token_budget", "i8"),
        ("block_tokens", "i8"),
        ("catch_up_budget", "i8"),
        ("verify_capacity", "i8"),
        ("forward", "f8", (MAX_GAMMA + 1, MAX_BATCH + 1)),
        ("draft", "f8", (MAX_GAMMA + 1, MAX_BATCH + 1)),
        ("by_tokens", "f8", (MAX_TOKENS + 1,)),
        ("catch_up_start_s", "f8"),
        ("catch_up_token_s", "f8"),
        ("kv_s", "f8"),
        ("draft_kv_s", "f8"),
        ("base_context", "f8"),
        ("host_s", "f8"),
        ("noise", "f8"),
        ("spike_chance", "f8"),
        ("spike", "f8"),
        # The draft's memory.
        ("elastic", "i8"),
        ("draft_blocks", "i8"),
        ("tau_low", "i8"),
        ("persist_steps", "i8"),
        ("dwell_s", "f8"),
        ("expand_s", "f8"),
        ("squeeze_s", "f8"),
        ("residency", "i8"),
        ("residency_until", "f8"),
        ("residency_since", "f8"),
        ("short_steps", "i8"),
        ("expansions", "i8"),
        ("squeezes", "i8"),
        # What happens to it: phases by time, acceptance by region and position.
        ("phases", "i8"),
        ("phase", "i8"),
        ("phase_start", "f8", (MAX_PHASES,)),
        ("phase_acceptance", "f8", (MAX_PHASES, MAX_REGIONS)),
        ("phase_forward", "f8", (MAX_PHASES,)),
        ("phase_draft", "f8", (MAX_PHASES,)),
        ("accept", "f8", (MAX_REGIONS, MAX_GAMMA)),
        ("half_context", "f8", (MAX_REGIONS,)),
        # Requests that come, a chunk of the trace at a time.
        ("arrival", "f8", (CHUNK,)),
        ("prompt", "i8", (CHUNK,)),
        ("output", "i8", (CHUNK,)),
        ("region_of", "i8", (CHUNK,)),
        ("known", "i8"),
        ("arrived", "i8"),
        ("admitted", "i8"),
        ("more", "i8"),
        # Requests that run: their slots in the order of admission, and those sent back.
        ("running", "i8"),
        ("order", "i8", _SLOTS),
        ("sent_back", "i8"),
        ("sent_back_slots", "i8", _SLOTS),
        ("free_slots", "i8"),
        ("free_slot", "i8", _SLOTS),
        ("prompt_left", "i8", _SLOTS),
        ("context", "i8", _SLOTS),
        ("left", "i8", _SLOTS),
        ("done", "i8", _SLOTS),
        ("region", "i8", _SLOTS),
        ("stale", "i8", _SLOTS),
        # Whether what is computed for it was computed before it was sent back.
        ("again", "i8", _SLOTS),
        ("drafts", "i8", _SLOTS),
        ("scheduled", "i8", _SLOTS),
        ("emits", "i8", _SLOTS),
        ("blocks", "i8", _SLOTS),
        ("came", "f8", _SLOTS),
        # Requests by the order in which they were first admitted, which is that of the trace.
        ("number", "i8", _SLOTS),
        ("placed", "i8"),
        ("free_blocks", "i8"),
        ("total_blocks", "i8"),
        # The step that is scheduled, and what the one before it left.
        ("step", "i8"),
        ("now", "f8"),
        ("batch", "i8"),
        ("requests", "i8"),
        ("prefill_tokens", "i8"),
        ("recomputed_tokens", "i8"),
        ("verify_tokens", "i8"),
        ("gamma_drafted", "i8"),
        ("draft_seconds", "f8"),
        ("draft_prefill_share", "f8"),
        ("prompt_tokens", "i8"),
        ("recomputed_since", "i8"),
        ("drafted_at_step", "i8"),
        ("rng", "u8"),
        ("content_seed", "u8"),
        # Sums, by phase; the second half of each counts only steps after `warm_steps`.
        ("warm_steps", "i8"),
        ("seconds", "f8", (2, MAX_PHASES)),
        ("in_system", "f8", (2, MAX_PHASES)),
        ("decoding", "f8", (2, MAX_PHASES)),
        ("tokens", "i8", (2, MAX_PHASES)),
        ("steps", "i8", (2, MAX_PHASES)),
        ("finished", "i8"),
        ("preemptions", "i8"),
        ("switches", "i8"),
        ("latency", "i8", (HISTOGRAM,)),
        ("first_token", "i8", (HISTOGRAM,)),
        ("first_token_sum", "f8"),
    ]
)


class StepRow(NamedTuple):
    """What the step just executed reports, as a step report does; `next_requests` is of the one after."""

    step: float
    now: float
    batch: float
    gamma: float
    drafted_at_step: float
    draft_seconds: float
    forward_seconds: float
    tokens: float
    prefill_share: float
    prompt_tokens: float
    catch_up_seconds: float
    catch_up_tokens: float
    stale_tokens: float
    gamma_drafted: float
    own_draft_seconds: float
    own_prefill_tokens: float
    free_blocks: float
    waiting: float
    residency: float
    own_recomputed_tokens: float
    recomputed_tokens: float
    next_requests: float


ROW_FIELDS = len(StepRow._fields)
ROW_SIZE = ROW_FIELDS + 2 * MAX_GAMMA


def by_position(row: Sequence[float], gamma: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Requests with a verified draft at each position, and with an accepted one."""
    start = ROW_FIELDS
    verified = tuple(map(int, row[start : start + gamma]))
    start += MAX_GAMMA
    return verified, tuple(map(int, row[start : start + gamma]))
