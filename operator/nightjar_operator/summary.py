"""What the sidecars of a service say together, in numbers that stand still while nothing happens."""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from statistics import fmean

from nightjar_api import durations
from nightjar_api.status import BucketStatus, SpeculationStatus
from nightjar_operator.reports import Planning

ON_DEVICE = "OnDevice"

# A number moves only when it moved by more than this share of itself, and more than one.
_NOISE = 0.1


def summary(reports: Sequence[Planning]) -> SpeculationStatus | None:
    """None without reports. Lengths are ranges where pods differ, tokens per second a sum, the rest averages."""
    if not reports:
        return None
    return SpeculationStatus(
        gamma=_range(report.gamma for report in reports),
        buckets=_buckets(reports),
        acceptance_percent=_acceptance(reports),
        switch_cost=_switch_cost([one.switch_seconds for one in reports if one.switch_seconds is not None]),
        drafts_on_gpu=f"{sum(report.residency == ON_DEVICE for report in reports)}/{len(reports)}",
        tokens_per_second=_total([one.tokens_per_second for one in reports if one.tokens_per_second is not None]),
    )


def steadied(before: SpeculationStatus | None, now: SpeculationStatus | None) -> SpeculationStatus | None:
    """`now`, with the numbers that moved by no more than noise as they were `before`."""
    if before is None or now is None:
        return now
    kept = {
        "acceptance_percent": _steady_shares(before.acceptance_percent, now.acceptance_percent),
        "tokens_per_second": _steady(before.tokens_per_second, now.tokens_per_second),
        "switch_cost": _steady_duration(before.switch_cost, now.switch_cost),
    }
    return now.model_copy(update=kept)


def _steady(old: int | None, new: int | None) -> int | None:
    return old if old is not None and new is not None and abs(new - old) <= max(1.0, _NOISE * old) else new


def _steady_shares(old: list[int], new: list[int]) -> list[int | None]:
    return [_steady(*pair) for pair in zip_longest(old[: len(new)], new)]


def _steady_duration(old: str | None, new: str | None) -> str | None:
    if old is None or new is None:
        return new
    before, now = durations.seconds(old), durations.seconds(new)
    return old if abs(now - before) <= _NOISE * before else new


def _range(gammas: Iterable[int | None]) -> str | None:
    known = {gamma for gamma in gammas if gamma is not None}
    if not known:
        return None
    return f"{min(known)}" if len(known) == 1 else f"{min(known)}-{max(known)}"


def _buckets(reports: Sequence[Planning]) -> list[BucketStatus]:
    """Pods with other settings for a moment have other buckets: only those of the first are told."""
    found = []
    for bucket in reports[0].buckets:
        same = (one for report in reports for one in report.buckets if (one.low, one.high) == (bucket.low, bucket.high))
        gamma = _range(one.gamma for one in same)
        found.append(BucketStatus(min_batch=bucket.low, max_batch=bucket.high, gamma=gamma or ""))
    return found


def _acceptance(reports: Sequence[Planning]) -> list[int]:
    positions = max(len(report.acceptance) for report in reports)
    rates = ([one.acceptance[at] for one in reports if at < len(one.acceptance)] for at in range(positions))
    return [round(100 * fmean(rate)) for rate in rates]


def _switch_cost(seconds: list[float]) -> str | None:
    if not seconds:
        return None
    milliseconds = 1e3 * fmean(seconds)
    # Two digits that mean something, and no exponent, which a duration has not.
    if milliseconds >= 10:
        return f"{float(f'{milliseconds:.2g}'):.0f}ms"
    return f"{milliseconds:.1f}ms" if milliseconds >= 1 else f"{1e3 * milliseconds:.0f}us"


def _total(rates: list[float]) -> int | None:
    return round(sum(rates)) if rates else None
