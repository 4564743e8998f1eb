"""The report as a table, for the terminal and the page."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from nightjar_benchmarks.demo.scenario import FIXED, NIGHTJAR, NO_DRAFT

HEADER = ("phase", "server", "output tok/s", "median TTFT", "median latency", "nightjar ÷ it")
_RATIO_OF = {NO_DRAFT: "vs_no_draft", FIXED: "vs_fixed_3"}


def table(report: Mapping[str, Any]) -> Table:
    made = Table()
    for position, name in enumerate(HEADER):
        made.add_column(name, justify="left" if position < 2 else "right")
    for row in rows(report):
        ours = row[1] == NIGHTJAR
        made.add_row(*row, style="bold" if ours else None, end_section=ours)
    return made


def rows(report: Mapping[str, Any]) -> list[list[str]]:
    """One row per phase and server, the total last, as text; the phase is named once."""
    found = []
    for index, phase in enumerate(report["arms"][NIGHTJAR]["phases"]):
        for name in (NO_DRAFT, FIXED, NIGHTJAR):
            stats = report["arms"][name]["phases"][index]
            ratios = report["ratios"].get(_RATIO_OF.get(name), {})
            found.append(
                [
                    phase["name"] if name == NO_DRAFT else "",
                    name,
                    f"{stats['tokens_per_s']:.1f}",
                    _seconds(stats["ttft_s"]["p50"]),
                    _seconds(stats["latency_s"]["p50"]),
                    _ratio(ratios.get(phase["name"])),
                ]
            )
    return found


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
