"""Statistics of served phases: pure functions over records."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nightjar_benchmarks.load.client import RequestRecord, tokens_by
from nightjar_benchmarks.load.replay import PhaseRun


@dataclass(frozen=True)
class Spread:
    """Median and 95th percentile; None when there was nothing to measure."""

    p50: float | None
    p95: float | None


@dataclass(frozen=True)
class PhaseStats:
    """Seconds, and output tokens per second; failed requests count for nothing but `failed`."""

    name: str
    requests: int
    failed: int
    tokens: int
    wall_s: float
    tokens_per_s: float
    ttft_s: Spread
    latency_s: Spread


def phase_stats(run: PhaseRun) -> PhaseStats:
    return _stats(run.phase.name, run.records, run.end - run.start)


def total_stats(runs: Sequence[PhaseRun]) -> PhaseStats:
    """All phases together; the pauses between phases are nobody's time."""
    records = [record for run in runs for record in run.records]
    return _stats("total", records, sum(run.end - run.start for run in runs))


def rate_over_time(records: Sequence[RequestRecord], bin_s: float) -> list[tuple[float, float]]:
    """(middle of the bin, output tokens per second), from time 0 to the last token."""
    chunks = tokens_by(records)
    if not chunks:
        return []
    times, tokens = np.array(chunks).T
    bins = int(times[-1] // bin_s) + 1
    sums = np.bincount((times // bin_s).astype(int), weights=tokens, minlength=bins)
    return [((index + 0.5) * bin_s, float(total / bin_s)) for index, total in enumerate(sums)]


def load_over_time(records: Sequence[RequestRecord], bin_s: float) -> list[tuple[float, int]]:
    """(start of the bin, most requests in flight in it), from time 0 to the bin in which the last one ended."""
    changes = sorted([(record.start, 1) for record in records] + [(record.end, -1) for record in records])
    most: dict[int, int] = {}
    level = last = 0
    for time, change in changes:
        now = int(time // bin_s)
        for passed in range(last, now + 1):
            most[passed] = max(most.get(passed, 0), level)
        level += change
        most[now] = max(most[now], level)
        last = now
    return [(index * bin_s, found) for index, found in sorted(most.items())]


def _stats(name: str, records: Sequence[RequestRecord], wall_s: float) -> PhaseStats:
    good = [record for record in records if record.error is None]
    tokens = sum(len(record.token_ids) for record in good)
    return PhaseStats(
        name=name,
        requests=len(records),
        failed=len(records) - len(good),
        tokens=tokens,
        wall_s=wall_s,
        tokens_per_s=tokens / wall_s if wall_s > 0 else 0.0,
        ttft_s=_spread([record.chunk_times[0] - record.start for record in good]),
        latency_s=_spread([record.end - record.start for record in good]),
    )


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(None, None)
    p50, p95 = np.percentile(values, [50, 95])
    return Spread(float(p50), float(p95))
