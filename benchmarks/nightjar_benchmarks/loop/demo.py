"""The demo's figures, from the reports of one run or, as engines of one kind differ from turn to turn, of several."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nightjar_benchmarks.demo.report import ratios, worst_phase_ratio
from nightjar_benchmarks.demo.scenario import FIXED, NIGHTJAR, NO_DRAFT
from nightjar_benchmarks.records import Figure


def measure(reports: Sequence[Path], commit: str) -> dict[str, Figure]:
    """demo_*; ValueError when a report is not of a full demo at `commit`."""
    return figures({str(report): json.loads(report.read_text(encoding="utf-8")) for report in reports}, commit)


def figures(report_by_file: Mapping[str, Mapping[str, Any]], commit: str) -> dict[str, Figure]:
    """demo_vs_no_draft, demo_vs_fixed_3 and demo_worst_phase_ratio, of the runs as if they were one."""
    reports = list(report_by_file.values())
    for file, report in report_by_file.items():
        for key, required in (("commit", commit), ("quick", False), ("failed", 0), ("lossless", True)):
            if report[key] != required:
                raise ValueError(f"{file}: {key} {required!r} is required, found {report[key]!r}; run `nightjar demo`")
    rates = {arm: _rates([report["arms"][arm]["phases"] for report in reports]) for arm in (NO_DRAFT, FIXED, NIGHTJAR)}
    compared = {
        "vs_no_draft": ratios(rates[NIGHTJAR], rates[NO_DRAFT]),
        "vs_fixed_3": ratios(rates[NIGHTJAR], rates[FIXED]),
    }
    each = [
        {name: report[name] for name in ("ratios", "requests", "failed", "lossless", "gamma_switches", "wall_s")}
        for report in reports
    ]
    worst = [report["worst_phase_ratio"] for report in reports]
    return {
        "demo_vs_no_draft": Figure(
            _known(compared["vs_no_draft"]["total"]), "×", {"tokens_per_s": rates, "runs": each}
        ),
        "demo_vs_fixed_3": Figure(_known(compared["vs_fixed_3"]["total"]), "×", compared),
        "demo_worst_phase_ratio": Figure(_known(worst_phase_ratio(rates)), "×", {"by_run": worst, "ratios": compared}),
    }


def _rates(runs: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, float]:
    """Output tokens per second of one arm by phase, and in total."""
    return {
        phases[0]["name"]: sum(phase["tokens"] for phase in phases) / sum(phase["wall_s"] for phase in phases)
        for phases in zip(*runs, strict=True)
    }


def _known(ratio: float | None) -> float:
    if ratio is None:
        raise ValueError("report.json: servers that all gave tokens are required; run `nightjar demo`")
    return ratio
