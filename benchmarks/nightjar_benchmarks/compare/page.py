"""The comparison as one self-contained page."""

import math
from collections.abc import Callable, Mapping

import plotly.graph_objects as go

from nightjar_benchmarks.compare.scores import Scores
from nightjar_benchmarks.pages import LOOKS, Page
from nightjar_benchmarks.records import Figure

_ROW_PX = 28


def page(scores: Scores, found: Mapping[str, Figure]) -> str:
    """HTML: each policy's score and latency beside the oracle's, and the figures."""
    made = Page("nightjar compare")
    made.add("<h1>Policies on simulated engines</h1>")
    made.add(
        "<h2>Score, % of the oracle's</h2>"
        '<p class="note">More is better. The oracle knows the simulator\'s truth and takes the least expected time per'
        " token in each step; it does not look ahead, so more than 100 is possible.</p>"
    )
    made.plot(_scores(scores), wide=True)
    made.add('<h2>p99 latency per token, × the oracle\'s</h2><p class="note">Less is better; the first seed.</p>')
    made.plot(_latencies(scores), wide=True)
    if "regret_exponent" in found:
        made.add("<h2>Regret of the paper's policy over visits</h2>")
        made.plot(_regret(found["regret_exponent"]))
    if found:
        made.add(f"<h2>Figures</h2>{_table(found)}")
    return made.html()


def _scores(scores: Scores) -> go.Figure:
    def share(name: str, policy: str) -> float:
        return scores.mean(name, policy) / scores.mean(name, "oracle")

    return _grid(scores, share, lambda value: f"{100 * value:.0f}", lambda value: min(value, 1.0))


def _latencies(scores: Scores) -> go.Figure:
    def ratio(name: str, policy: str) -> float:
        outcomes = scores.outcomes
        return outcomes[name, policy, 0].latency_p99 / outcomes[name, "oracle", 0].latency_p99

    return _grid(
        scores, ratio, lambda value: f"{value:.2f}" if value < 10 else f"{value:.0f}", lambda value: -math.log(value)
    )


def _grid(
    scores: Scores,
    value: Callable[[str, str], float],
    text: Callable[[float], str],
    goodness: Callable[[float], float],
) -> go.Figure:
    """A cell a policy and scenario with its number, the brighter the better: so many colours no eye tells apart."""
    names = list(scores.scenarios)
    policies = [policy for policy in scores.policies if policy != "oracle"]
    values = [[value(name, policy) for name in names] for policy in policies]
    grid = go.Figure(
        go.Heatmap(
            x=names,
            y=policies,
            z=[[goodness(each) for each in row] for row in values],
            text=[[text(each) for each in row] for row in values],
            texttemplate="%{text}",
            hovertemplate="%{y} on %{x}: %{text}<extra></extra>",
            colorscale="Cividis",
            showscale=False,
            xgap=1,
            ygap=1,
        )
    )
    grid.update_yaxes(autorange="reversed")
    grid.update_xaxes(tickangle=-40)
    grid.update_layout(height=_ROW_PX * len(policies) + 160, margin={"l": 120, "r": 20, "t": 10, "b": 150})
    return grid


def _table(found: Mapping[str, Figure]) -> str:
    rows = "".join(
        f'<tr><td style="text-align: left">{name}</td><td>{figure.value:,.4g}</td>'
        f'<td style="text-align: left">{figure.unit}</td></tr>'
        for name, figure in found.items()
    )
    return f"<table>{rows}</table>"


def _regret(figure: Figure) -> go.Figure:
    """ADA-BINGREEDY's cumulative regret over visits, a line a coin; both axes logarithmic, √T beside."""
    lines = go.Figure()
    for exponent, (colour, dash, symbol) in zip(figure.raw, LOOKS, strict=False):
        name = f"coin {exponent['coin']}: slope {exponent['slope']:.2f}"
        lines.add_scatter(name=name, x=exponent["visits"], y=exponent["regret"], mode="lines+markers")
        lines.data[-1].update(line={"color": colour, "dash": dash}, marker={"symbol": symbol, "size": 8})
    visits, regret = figure.raw[0]["visits"], figure.raw[0]["regret"]
    root = [regret[0] * (visit / visits[0]) ** 0.5 for visit in visits]
    lines.add_scatter(name="√T", x=visits, y=root, mode="lines", line={"color": "#555", "dash": "dot"})
    lines.update_layout(xaxis_type="log", yaxis_type="log", xaxis_title="visits", yaxis_title="regret", height=450)
    lines.update_layout(legend={"orientation": "h", "y": 1.01, "yanchor": "bottom"}, margin={"l": 60, "r": 20})
    return lines
