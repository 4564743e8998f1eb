"""From measured arms to report.json. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from nightjar_benchmarks.demo.arm import ArmRun
from nightjar_benchmarks.demo.scenario import FIXED, NIGHTJAR, NO_DRAFT
from nightjar_benchmarks.load.client import RequestRecord
from nightjar_benchmarks.load.stats import PhaseStats, load_over_time, phase_stats, rate_over_time, total_stats

_RATE_BIN_SECONDS = 1.0
_LOAD_BIN_SECONDS = 0.25


def report(arms: Sequence[ArmRun], about: Mapping[str, Any]) -> dict[str, Any]:
    """JSON of the three arms; `about` (versions, host, scenario, …) goes in as it is."""
    by_name = {arm.name: arm for arm in arms}
    mismatches = {name: mismatching(by_name[NO_DRAFT], by_name[name]) for name in (FIXED, NIGHTJAR)}
    records = [record for arm in arms for record in records_of(arm)]
    rates = {arm.name: rates_of(arm) for arm in arms}
    return {
        "lossless": not any(mismatches.values()),
        "mismatches": mismatches,
        "requests": len(records),
        "failed": sum(record.error is not None for record in records),
        "gamma_switches": by_name[NIGHTJAR].gamma_switches,
        "ratios": {
            "vs_no_draft": ratios(rates[NIGHTJAR], rates[NO_DRAFT]),
            "vs_fixed_3": ratios(rates[NIGHTJAR], rates[FIXED]),
        },
        "worst_phase_ratio": worst_phase_ratio(rates),
        "arms": {arm.name: _arm(arm) for arm in arms},
        **about,
    }


def mismatching(reference: ArmRun, arm: ArmRun) -> list[str]:
    """Ids of requests whose tokens differ from the reference's; a failed request differs."""
    expected = {record.id: record for record in records_of(reference)}
    return [
        record.id
        for record in sorted(records_of(arm), key=lambda record: record.id)
        if record.error or expected[record.id].error or record.token_ids != expected[record.id].token_ids
    ]


def records_of(arm: ArmRun) -> list[RequestRecord]:
    return [record for run in arm.phases for record in run.records]


def stats_of(arm: ArmRun) -> list[PhaseStats]:
    return [*(phase_stats(run) for run in arm.phases), total_stats(arm.phases)]


def rates_of(arm: ArmRun) -> dict[str, float]:
    """Output tokens per second by phase, and in total."""
    return {stats.name: stats.tokens_per_s for stats in stats_of(arm)}


def ratios(ours: Mapping[str, float], theirs: Mapping[str, float]) -> dict[str, float | None]:
    """None where the other served nothing."""
    return {name: ours[name] / theirs[name] if theirs[name] else None for name in ours}


def worst_phase_ratio(rates: Mapping[str, Mapping[str, float]]) -> float | None:
    """Nightjar's rate over the better of the others, in its worst phase."""
    phases = [name for name in rates[NIGHTJAR] if name != "total"]
    best = {name: max(rates[NO_DRAFT][name], rates[FIXED][name]) for name in phases}
    if not all(best.values()):
        return None
    return min(rates[NIGHTJAR][name] / best[name] for name in phases)


def _arm(arm: ArmRun) -> dict[str, Any]:
    records = sorted(records_of(arm), key=lambda record: record.start)
    good = [record for record in records if record.error is None]
    return {
        "start_up_s": arm.start_up_s,
        "gamma_switches": arm.gamma_switches,
        "phases": [asdict(stats) for stats in stats_of(arm)],
        "errors": {record.id: record.error for record in records if record.error is not None},
        "timeline": {
            "phases": [{"name": run.phase.name, "start": run.start, "end": run.end} for run in arm.phases],
            "load": load_over_time(records, _LOAD_BIN_SECONDS),
            "gamma": arm.gammas,
            "tokens_per_s": rate_over_time(records, _RATE_BIN_SECONDS),
            "ttft_s": [(record.start, record.chunk_times[0] - record.start) for record in good],
            "latency_s": [(record.start, record.end - record.start) for record in good],
        },
    }
