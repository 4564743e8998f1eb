"""`python -m nightjar_benchmarks.loop`: measure and record topic `loop`."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nightjar_benchmarks.figures import source, table
from nightjar_benchmarks.loop import demo, gamma0, sidecar_kill, steps
from nightjar_benchmarks.records import Figure, clean_commit, measured, write
from nightjar_benchmarks.stopping import interrupted_by_signals

TOPIC = "loop"
_OUT = Path("out")
_REPORT = _OUT / "demo" / "report.json"


class Part(StrEnum):
    """What can be measured alone."""

    DEMO = "demo"
    GAMMA0 = "gamma0"
    STEPS = "steps"
    SIDECAR_KILL = "sidecar-kill"


def main(
    parts: Annotated[list[Part] | None, typer.Argument(help="All if none is named.")] = None,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            show_default=str(_REPORT),
            help="What `demo` reads; several if runs are to count together.",
        ),
    ] = None,
) -> None:
    """Measure and record the figures of the whole loop; `demo` reads the report that `nightjar demo` left."""
    console = Console(highlight=False)
    root = Path.cwd()
    commit = clean_commit(root)  # refuse before, not after, minutes of work
    workdir = (_OUT / TOPIC).resolve()
    measurements: dict[Part, Callable[[], dict[str, Figure]]] = {
        Part.DEMO: lambda: demo.measure(report or [_REPORT], commit),
        Part.GAMMA0: lambda: gamma0.measure(workdir),
        Part.STEPS: lambda: steps.measure(workdir),
        Part.SIDECAR_KILL: lambda: sidecar_kill.measure(workdir),
    }
    workdir.mkdir(parents=True, exist_ok=True)
    command = " ".join(["python -m nightjar_benchmarks.loop", *sys.argv[1:]])
    for part in parts or list(Part):
        with console.status(f"measuring {part}"), interrupted_by_signals():
            found = measurements[part]()
        record = measured(root, command, found, datetime.now(UTC))
        write(root, TOPIC, record)
        console.print(table(TOPIC, record), source(record, 0))


if __name__ == "__main__":
    typer.run(main)
