"""`nightjar simulate`: one policy on one load, a scenario of a suite or a trace file."""

import html
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import plotly.graph_objects as go
import typer
from plotly.subplots import make_subplots
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.compare.contenders import policy
from nightjar_benchmarks.compare.suites import SUITES
from nightjar_benchmarks.pages import LOOKS, Page
from nightjar_benchmarks.simulator import step_times, traces
from nightjar_benchmarks.simulator.arrivals import Chunk
from nightjar_benchmarks.simulator.driver import Log, drive
from nightjar_benchmarks.simulator.outcome import Outcome
from nightjar_benchmarks.simulator.scenario import Scenario

_POLICIES = (
    "nightjar", "ada-bingreedy", "static-table", "dsd", "banditspec-ucb", "banditspec-exp3", "linucb", "linear-ts"
)  # fmt: skip
# What is plotted, its axis, and the most points: a rate over few steps is all noise.
_PLOTS = (("gamma", "γ", 2000), ("batch", "decode batch", 2000), ("rate", "tokens per second", 200))


def simulate(
    *,
    policies: Annotated[list[str] | None, typer.Option("--policy", help=f"Of: {', '.join(_POLICIES)}.")] = None,
    scenario: Annotated[
        str, typer.Option(help="A scenario of the suite `paper`; an unknown one lists them.")
    ] = "dynamic/oscillation",
    trace: Annotated[
        Path | None,
        typer.Option(
            help="A trace file instead: Azure, BurstGPT, Mooncake, or time, prompt_tokens, output_tokens as CSV."
        ),
    ] = None,
    speed: Annotated[float, typer.Option(min=0.001, help="Plays the trace so many times faster.")] = 1.0,
    times: Annotated[str | None, typer.Option(help=f"Step times: {', '.join(step_times.SHIPPED)} or a file.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same load.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcomes as JSON.")] = False,
    out: Annotated[Path, typer.Option(help="Where the page with the plots is written.")] = Path("out/simulate"),
) -> None:
    """Simulate policies on one load and plot γ, batch and throughput over time."""
    console = Console(highlight=False)
    names = policies or ["nightjar", "ada-bingreedy"]
    try:
        chosen = _scenario(scenario, trace, times, speed)
        runs = {name: _run(name, chosen, seed) for name in names}
    except (ConfigurationError, ValueError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]error[/red] {escape(str(error))}")
        raise typer.Exit(1) from error
    out.mkdir(parents=True, exist_ok=True)
    (out / "simulate.html").write_text(
        _page(chosen.name, {name: log for name, (_, log) in runs.items()}), encoding="utf-8"
    )
    if as_json:
        print(json.dumps({name: _document(outcome) for name, (outcome, _) in runs.items()}, indent=1))
        return
    console.print(_table({name: outcome for name, (outcome, _) in runs.items()}))
    console.print(f"{out / 'simulate.html'}", soft_wrap=True)


def _scenario(name: str, trace: Path | None, times: str | None, speed: float) -> Scenario:
    known = SUITES["paper"]()
    if name not in known:
        raise ConfigurationError(f"--scenario: one of {', '.join(known)} is required, found {name!r}")
    chosen = known[name]
    if times is not None:
        chosen = replace(chosen, times=step_times.load(times))
        if chosen.times.gamma_max < chosen.engine.gamma_max:
            chosen = replace(chosen, engine=replace(chosen.engine, gamma_max=chosen.times.gamma_max))
    if trace is not None:
        requests = traces.read(trace)
        prompt = sum(request.prompt for request in requests) / len(requests)
        output = sum(request.output for request in requests) / len(requests)
        # A long output is being decoded for long: the mean is over tokens, as lengths.Dataset.context.
        contexts = sum(request.output * (request.prompt + request.output / 2) for request in requests)

        def play(seed: int) -> Iterator[Chunk]:
            del seed
            return traces.chunks(requests, speed)

        chosen = replace(
            chosen,
            name=str(trace),
            trace=play,
            mix=tuple(float(region == traces.CHAT) for region in range(len(chosen.mix))),
            prompt_per_output=prompt / output,
            mean_context=contexts / sum(request.output for request in requests),
            mean_output=output,
        )
    return chosen


def _run(name: str, scenario: Scenario, seed: int) -> tuple[Outcome, Log]:
    if name not in _POLICIES:
        raise ConfigurationError(f"--policy: one of {', '.join(_POLICIES)} is required, found {name!r}")
    log = Log()
    return drive(scenario, policy(name, scenario, seed), seed, log=log), log


def _document(outcome: Outcome) -> dict[str, Any]:
    document = asdict(outcome)
    document["throughput"] = outcome.all.throughput
    document["latency_per_token"] = outcome.all.latency_per_token
    return document


def _table(outcomes: dict[str, Outcome]) -> Table:
    table = Table()
    for name in (
        "policy",
        "tok/s",
        "ms per token",
        "p99",
        "TTFT p50 ms",
        "steps",
        "on/off switches",
        "µs per decision",
    ):
        table.add_column(name, justify="left" if name == "policy" else "right")
    for name, outcome in outcomes.items():
        table.add_row(
            name,
            f"{outcome.all.throughput:,.0f}",
            f"{1e3 * outcome.all.latency_per_token:.2f}",
            f"{1e3 * outcome.latency_p99:.1f}",
            f"{1e3 * outcome.ttft_p50:.0f}",
            f"{outcome.all.steps:,}",
            f"{outcome.switches}",
            f"{1e6 * outcome.policy_seconds / max(1, outcome.all.steps):.0f}",
        )
    return table


def _page(title: str, logs: dict[str, Log]) -> str:
    figure = make_subplots(rows=len(_PLOTS), cols=1, shared_xaxes=True, vertical_spacing=0.05)
    for (name, log), (colour, dash, _) in zip(logs.items(), itertools.cycle(LOOKS)):
        for row, (values, _, points) in enumerate(_PLOTS, start=1):
            times, series = _series(log, values, points)
            look: dict[str, Any] = {"name": name, "legendgroup": name, "showlegend": row == 1}
            line = {"color": colour, "dash": dash, "width": 1.5}
            figure.add_trace(go.Scatter(x=times, y=series, mode="lines", line=line, **look), row=row, col=1)
    for row, (_, axis, _) in enumerate(_PLOTS, start=1):
        figure.update_yaxes(title_text=axis, rangemode="tozero", row=row, col=1)
    figure.update_xaxes(title_text="seconds", row=len(_PLOTS), col=1)
    figure.update_layout(
        height=900,
        margin={"l": 70, "r": 20, "t": 70, "b": 50},
        legend={"orientation": "h", "y": 1.01, "yanchor": "bottom"},
        hovermode="x",
    )
    made = Page("nightjar simulate")
    made.add(f"<h1>Simulated: {html.escape(title)}</h1>")
    made.plot(figure)
    return made.html()


def _series(log: Log, values: str, points: int) -> tuple[list[float], list[float]]:
    """At most so many points, means of the steps between them."""
    now = np.array(log.now)
    edges = np.linspace(0, len(now), min(points, len(now)) + 1).astype(int)
    starts = edges[:-1]
    times = now[starts]
    if values == "rate":
        spans = np.diff(np.append(times, now[-1]))
        series = np.add.reduceat(np.array(log.tokens, float), starts) / np.maximum(spans, 1e-6)
    else:
        counts = np.diff(edges)
        series = np.add.reduceat(np.array(getattr(log, values), float), starts) / counts
    return times.tolist(), series.tolist()
