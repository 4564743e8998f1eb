"""`python -m nightjar_benchmarks.operator_figures.process`: measure and record what the operator's process does.

Against a real API server whose nodes are played, so that pods are Ready and nothing runs in them; one stand-in
answers for all sidecars. What needs real pods is measured elsewhere.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from nightjar_benchmarks.control_plane import running
from nightjar_benchmarks.figures import source, table
from nightjar_benchmarks.operator_figures import one_service, scale
from nightjar_benchmarks.operator_figures.stage import Stage, stage
from nightjar_benchmarks.records import Figure, clean_commit, measured, write
from nightjar_benchmarks.stopping import interrupted_by_signals

TOPIC = "operator"
_NODES = 4

Measurement = Callable[[Stage], Coroutine[Any, Any, dict[str, Figure]]]


class Part(StrEnum):
    """What can be measured alone."""

    APPLY = "apply"
    IDLE = "idle"
    TUNING = "tuning"
    SCALE = "scale"


def main(
    parts: Annotated[list[Part] | None, typer.Argument(help="All if none is named.")] = None,
    services: Annotated[int, typer.Option(min=1, help="Of two pods each, for `scale`.")] = 500,
) -> None:
    """Measure and record the figures of the operator's process."""
    console = Console(highlight=False)
    root = Path.cwd()
    clean_commit(root)  # refuse before, not after, minutes of work
    command = " ".join(["python -m nightjar_benchmarks.operator_figures.process", *sys.argv[1:]])
    for part in parts or list(Part):
        with console.status(f"measuring {part}"), interrupted_by_signals():
            found = measure(root, part, services)
        made = measured(root, command, found, datetime.now(UTC))
        write(root, TOPIC, made)
        console.print(table(TOPIC, made), source(made, 0))


def measure(root: Path, part: Part, services: int) -> dict[str, Figure]:
    """The figures of `part`, on an API server of its own."""
    measurements: dict[Part, Measurement] = {
        Part.APPLY: one_service.apply,
        Part.IDLE: one_service.idle,
        Part.TUNING: one_service.tuning,
        Part.SCALE: lambda there: scale.measure(there, services),
    }

    async def run(kubeconfig: Path) -> dict[str, Figure]:
        async with stage(root, kubeconfig) as there:
            return await measurements[part](there)

    with running(root, fake_nodes=_NODES) as plane:
        return asyncio.run(run(plane.kubeconfig))


if __name__ == "__main__":
    typer.run(main)
