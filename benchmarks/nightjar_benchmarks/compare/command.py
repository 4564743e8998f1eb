"""`nightjar compare`: every policy on every scenario of a suite."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.columns import Columns
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import Progress
from rich.table import Table

from nightjar_benchmarks import records
from nightjar_benchmarks.compare import close_up, regret
from nightjar_benchmarks.compare.chance import chance
from nightjar_benchmarks.compare.contenders import ABLATION, COMPARED
from nightjar_benchmarks.compare.page import page
from nightjar_benchmarks.compare.runs import Task, run_all, tasks
from nightjar_benchmarks.compare.scores import ORACLE, Scores, figures, worth
from nightjar_benchmarks.compare.suites import SUITES
from nightjar_benchmarks.records import Figure
from nightjar_benchmarks.simulator.outcome import Outcome

_REGRET_SEEDS = 20
_REGRET_POWER = 15
_CLOSE_UP = ("7b-sharegpt/rates", "7b-specbench/rates", "dynamic/oscillation")
_DRIFT = "drift/acceptance-halves"
_TOPIC = {"paper": "planner", "ablation": "ablation"}


def compare(
    *,
    suite: Annotated[str, typer.Option(help=f"One of: {', '.join(SUITES)}.")] = "paper",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each policy on each scenario.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures and scores as JSON.")] = False,
    out: Annotated[Path, typer.Option(help="Where the page with the plots is written.")] = Path("out/compare"),
    record: Annotated[bool, typer.Option(help="Write the figures to benchmarks/results/.")] = False,
) -> None:
    """Compare all policies on simulated engines."""
    if suite not in SUITES:
        raise typer.BadParameter(f"--suite: one of {', '.join(SUITES)} is required, found {suite!r}")
    console = Console(highlight=False, stderr=as_json)
    begun = time.perf_counter()
    todo = tasks(suite, COMPARED if suite == "paper" else ABLATION, seeds)
    scores = Scores(SUITES[suite](), _with_progress(todo, console))
    if suite == "ablation":
        found = worth(scores)
    else:
        found = figures(scores) | _close_ups(scores, seeds)
        found["suite_seconds"] = Figure(time.perf_counter() - begun, "s", {"runs": len(todo), "seeds": seeds})
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{suite}.html").write_text(page(scores, found), encoding="utf-8")
    if record:
        command = f"nightjar compare --suite {suite} --seeds {seeds} --record"
        records.write(Path(), _TOPIC[suite], records.measured(Path(), command, found, datetime.now(UTC)))
    if as_json:
        print(json.dumps(document(scores, found), indent=1, ensure_ascii=False))
        return
    console.print(*score_tables(scores), figure_table(found))
    console.print(f"{out / f'{suite}.html'}", soft_wrap=True)


def _with_progress(todo: list[Task], console: Console) -> list[tuple[Task, Outcome]]:
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("simulating", total=len(todo))
        done = []
        for result in run_all(todo):
            done.append(result)
            progress.advance(bar)
        return done


def _close_ups(scores: Scores, seeds: int) -> dict[str, Figure]:
    of = [scores.scenarios[name] for name in _CLOSE_UP]
    exponents = [regret.exponent(coin, _REGRET_SEEDS, _REGRET_POWER) for coin in ("1/b", "1/sqrt(b)")]
    return {
        **close_up.exploration_and_speed(of, seeds),
        "recovery_steps": close_up.recovery(scores.scenarios[_DRIFT], max(seeds, 5)),
        "chance": chance(scores.scenarios),
        "simulator_steps_per_s": close_up.simulator_speed(of[0]),
        "regret_exponent": Figure(exponents[0].slope, "exponent", [asdict(exponent) for exponent in exponents]),
    }


def document(scores: Scores, found: dict[str, Figure]) -> dict[str, Any]:
    """What `--json` prints."""
    table = {name: {policy: scores.mean(name, policy) for policy in scores.policies} for name in scores.scenarios}
    return {"figures": {name: asdict(figure) for name, figure in found.items()}, "scores": table}


def score_tables(scores: Scores) -> Iterator[RenderableType]:
    """Scores as percentages of the oracle's, a table for each metric, so that 80 columns are enough for each.

    A row a policy; scenarios by number, named below.
    """
    by_metric: dict[str, list[str]] = {}
    for name, scenario in scores.scenarios.items():
        by_metric.setdefault(scenario.metric, []).append(name)
    for metric, names in by_metric.items():
        yield _score_table(scores, metric, names)
        yield Padding(
            Columns([f"{number} {name}" for number, name in enumerate(names, 1)], padding=(0, 3)), (0, 0, 1, 0)
        )


def _score_table(scores: Scores, metric: str, names: Sequence[str]) -> Table:
    table = Table(title=f"score ({metric.replace('_', ' ')}), % of the oracle's", title_justify="left")
    table.add_column("policy", no_wrap=True)
    for number in range(1, len(names) + 1):
        table.add_column(str(number), justify="right", no_wrap=True)
    for policy in scores.policies:
        if policy != ORACLE:
            table.add_row(policy, *_percent(scores.mean(name, policy) / scores.mean(name, ORACLE) for name in names))
    return table


def _percent(shares: Iterable[float]) -> list[str]:
    return [f"{100 * share:.0f}" for share in shares]


def figure_table(found: dict[str, Figure]) -> Table:
    table = Table(title="figures", title_justify="left")
    for name in ("figure", "value", "unit"):
        table.add_column(name)
    for name, figure in found.items():
        table.add_row(name, f"{figure.value:,.4g}", figure.unit)
    return table
