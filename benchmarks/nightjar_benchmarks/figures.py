"""`nightjar figures`: every recorded figure beside its goal."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nightjar_benchmarks.goals import GOALS, Goal
from nightjar_benchmarks.records import RESULTS, Figure, Record, commits_behind, read

_COLOURS = {"met": "green", "missed": "red", "not recorded": "dim", "recorded": "green"}


def figures(
    root: Annotated[Path, typer.Option(help="The repository; the current folder if unset.")] = Path(),
) -> None:
    """Print every recorded figure beside its goal."""
    if not (root / RESULTS).is_dir():
        raise typer.BadParameter(f"--root: a folder with {RESULTS} is required, found {root.resolve()}")
    console = Console(highlight=False)
    for topic in topics(root):
        try:
            record = read(root, topic)
        except ValueError as error:
            console.print(f"[red]error[/red] {escape(str(error))}", soft_wrap=True)
            continue
        behind = commits_behind(root, record.commit) if record else None
        console.print(table(topic, record))
        console.print(source(record, behind), soft_wrap=True)


def topics(root: Path) -> list[str]:
    """Those with goals in the goals' order, then other recorded ones."""
    wanted = dict.fromkeys(goal.topic for goal in GOALS)
    recorded = sorted(path.stem for path in (root / RESULTS).glob("*.json"))
    return list(wanted | dict.fromkeys(recorded))


def table(topic: str, record: Record | None) -> Table:
    made = Table(title=topic, title_justify="left", title_style="bold")
    for name, justify in (("figure", "left"), ("value", "right"), ("goal", "right"), ("unit", "left"), ("", "left")):
        made.add_column(name, justify="right" if justify == "right" else "left", no_wrap=True)
    for name, value, goal, unit, verdict in rows(topic, record):
        made.add_row(name, value, goal, unit, f"[{_COLOURS[verdict]}]{verdict}[/{_COLOURS[verdict]}]")
    return made


def rows(topic: str, record: Record | None) -> list[tuple[str, str, str, str, str]]:
    """(figure, value, goal, unit, verdict), the goals first."""
    found = dict(record.figures) if record else {}
    goals = [goal for goal in GOALS if goal.topic == topic]
    judged = [_row(goal, found.pop(goal.name, None)) for goal in goals]
    return judged + [(name, _number(figure.value), "", figure.unit, "recorded") for name, figure in found.items()]


def source(record: Record | None, behind: int | None) -> str:
    """Where a record comes from, and whether the code has changed since."""
    if record is None:
        return "  not recorded\n"
    if behind is None:
        age = "[red]a commit that is not part of this history[/red]"
    elif behind == 0:
        age = "the code as it is"
    else:
        age = f"[yellow]older than the code by {behind} commit{'s' if behind > 1 else ''}[/yellow]"
    return f"  {record.date[:10]}, {record.commit[:10]} ({age}), {escape(record.command)}\n"


def _row(goal: Goal, figure: Figure | None) -> tuple[str, str, str, str, str]:
    wanted = "" if goal.comparison == "report" else f"{goal.comparison} {_number(goal.goal)}"
    if figure is None:
        return (goal.name, "", wanted, goal.unit, "not recorded")
    verdict = "recorded" if goal.comparison == "report" else "met" if goal.met(figure.value) else "missed"
    return (goal.name, _number(figure.value), wanted, figure.unit, verdict)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
