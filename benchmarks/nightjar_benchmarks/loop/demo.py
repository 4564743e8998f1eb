"""The demo's figures, from its report."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nightjar_benchmarks.records import Figure


def measure(report: Path, commit: str) -> dict[str, Figure]:
    """demo_*; ValueError when the report is not of a full demo at `commit`."""
    return figures(json.loads(report.read_text(encoding="utf-8")), commit)


def figures(report: Mapping[str, Any], commit: str) -> dict[str, Figure]:
    """demo_vs_no_draft, demo_vs_fixed_3 and demo_worst_phase_ratio."""
    for key, required in (("commit", commit), ("quick", False), ("failed", 0), ("lossless", True)):
        if report[key] != required:
            raise ValueError(f"report.json: {key} {required!r} is required, found {report[key]!r}; run `nightjar demo`")
    raw = {name: report[name] for name in ("ratios", "requests", "failed", "lossless", "gamma_switches", "wall_s")}
    raw["tokens_per_s"] = {
        name: {phase["name"]: phase["tokens_per_s"] for phase in arm["phases"]} for name, arm in report["arms"].items()
    }
    return {
        "demo_vs_no_draft": Figure(report["ratios"]["vs_no_draft"]["total"], "×", raw),
        "demo_vs_fixed_3": Figure(report["ratios"]["vs_fixed_3"]["total"], "×", raw["ratios"]),
        "demo_worst_phase_ratio": Figure(report["worst_phase_ratio"], "×", raw["ratios"]),
    }
