"""The report as one self-contained HTML page: works offline and from the file system."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from nightjar_benchmarks.demo.scenario import FIXED, NIGHTJAR, NO_DRAFT
from nightjar_benchmarks.demo.table import HEADER, rows
from nightjar_benchmarks.pages import LOOKS, Page

_STYLE = dict(zip((NIGHTJAR, FIXED, NO_DRAFT), LOOKS, strict=False))
# Key of the timeline, title, and how its points are drawn.
_PLOTS = (
    ("load", "requests in flight", "hv"),
    ("gamma", "γ", "hv"),
    ("tokens_per_s", "output tokens per second", "linear"),
    ("ttft_s", "time to first token, s", None),
    ("latency_s", "latency of a request, s", None),
)
_CSS = """
table { width: 100%; }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
tr.nightjar td { border-bottom: 1px solid #ccc; font-weight: 600; }
"""


def page(report: Mapping[str, Any]) -> str:
    made = Page("Nightjar demo", _CSS)
    made.add("<h1>Nightjar demo: one bursty load, three servers</h1>")
    made.add(_summary(report))
    made.add(_table(report))
    made.plot(figure(report["arms"]))
    made.add(_footer(report))
    return made.html()


def figure(arms: Mapping[str, Mapping[str, Any]]) -> go.Figure:
    """Time since each arm's trace began, to the right; requests are placed where they started."""
    made = make_subplots(rows=len(_PLOTS), cols=1, shared_xaxes=True, vertical_spacing=0.035)
    for name in (NO_DRAFT, FIXED, NIGHTJAR):
        timeline = arms[name]["timeline"]
        for row, (key, _, shape) in enumerate(_PLOTS, start=1):
            trace = _trace(name, timeline[key], shape)
            trace.showlegend = row == 1
            made.add_trace(trace, row=row, col=1)
    for row, (_, title, _) in enumerate(_PLOTS, start=1):
        made.update_yaxes(title_text=title, rangemode="tozero", row=row, col=1)
    made.update_yaxes(dtick=1, range=[-0.2, 3.3], row=2, col=1)
    made.update_xaxes(title_text="seconds since the trace began", row=len(_PLOTS), col=1)
    made.update_layout(
        height=1250,
        # On a phone the legend takes two lines.
        margin={"l": 70, "r": 20, "t": 70, "b": 50},
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom"},
        hovermode="x",
    )
    return made


def _trace(name: str, points: Sequence[tuple[float, float]], shape: str | None) -> go.Scatter:
    colour, dash, symbol = _STYLE[name]
    x, y = [point[0] for point in points], [point[1] for point in points]
    look: dict[str, Any] = {"name": name, "legendgroup": name, "x": x, "y": y}
    if shape is None:
        return go.Scatter(
            mode="markers", marker={"color": colour, "symbol": symbol, "size": 6, "opacity": 0.65}, **look
        )
    return go.Scatter(mode="lines", line={"color": colour, "dash": dash, "shape": shape, "width": 2}, **look)


def _summary(report: Mapping[str, Any]) -> str:
    if report["lossless"]:
        verdict = '<span class="good">Lossless:</span> every arm gave the same tokens for every request.'
    else:
        count = sum(len(ids) for ids in report["mismatches"].values())
        verdict = f'<span class="bad">Not lossless:</span> {count} answers differ, see report.json.'
    failed = report["failed"]
    style = "bad" if failed else "good"
    return (
        f"<p>{verdict} {report['requests']} requests, "
        f'<span class="{style}">{failed} failed</span>. '
        f"Nightjar changed γ {report['gamma_switches']} times.</p>"
    )


def _table(report: Mapping[str, Any]) -> str:
    header = "".join(f"<th>{html.escape(name)}</th>" for name in HEADER)
    body = "\n".join(
        f'<tr class="{row[1]}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows(report)
    )
    return (
        f"<table><thead><tr>{header}</tr></thead><tbody>{body}</tbody></table>"
        '<p class="note">TTFT: time to first token. The servers take turns at parts of a phase, in the surge at one '
        "crowd each; a faster server ends earlier. Before the trace each server was warmed up alike, at each "
        "concurrency.</p>"
    )


def _footer(report: Mapping[str, Any]) -> str:
    host, scenario = report["host"], report["scenario"]
    phases = ", ".join(
        f"{phase['name']} {phase['requests']} × {phase['concurrency']} at a time" for phase in scenario["phases"]
    )
    text = (
        f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB. Load: {phases}. "
        f"Agreement of the draft by region: {scenario['agreement']}. "
        + ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    )
    return f'<p class="note">{html.escape(text)}</p>'
