"""`nightjar profile`: tables of step times, from measured steps, and of a GPU's tile sizes."""

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.profile import measure, recording, tile_command
from nightjar_benchmarks.simulator import step_times
from nightjar_sidecar.errors import EngineAway


def profile(
    *,
    engine_socket: Annotated[Path | None, typer.Option(help="The control plane's socket of a running engine.")] = None,
    reports: Annotated[Path | None, typer.Option(help="A file of step reports instead, a JSON object a line.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long the engine is watched.")] = 60.0,
    record: Annotated[Path | None, typer.Option(help="Where the reports of the engine are kept.")] = None,
    kernels: Annotated[
        Path | None,
        typer.Option(help="A draft's folder or config.json: time tile sizes of its kernels on this GPU instead."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the table is written; out/step-times.json or out/tiles.json if unset.")
    ] = None,
) -> None:
    """Make a table of step times, and the best static table, from the steps of an engine.

    Only lengths and batches that were served are measured: let it serve under "off" and under a fixed length.

    With --kernels, no engine is needed: a table of tile sizes for the fused draft pass, to be run in the engine's image
    on a GPU that serves nothing else meanwhile. A table that is there already is extended by this GPU.
    """
    console = Console(highlight=False, soft_wrap=True)
    try:
        if kernels is not None:
            _only_kernels(engine_socket, reports, record)
            tile_command.measure(kernels, out or Path("out/tiles.json"), console)
            return
        out = out or Path("out/step-times.json")
        steps = _steps(engine_socket, reports, seconds)
        if record is not None:
            recording.write(record, steps)
        found = measure.profile(steps, out.stem)
        text = json.dumps(found.document, indent=1)
        times = step_times.parse(text, str(out))
    except (ConfigurationError, EngineAway) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]error[/red] {escape(str(error))}")
        raise typer.Exit(1) from error
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n", encoding="utf-8")
    most = max(batch for _, batch, _, _ in found.document["rows"])
    console.print(f"{out}: {len(found.document['rows'])} rows from {found.rounds} steps")
    console.print("planner:\n  policy: static-table")
    console.print(f"  table: {[list(entry) for entry in measure.table(times, found.tokens, most)]}", markup=False)


def _only_kernels(*others: Path | None) -> None:
    if any(other is not None for other in others):
        raise ConfigurationError("--kernels: no --engine-socket, --reports or --record beside it is required")


def _steps(socket: Path | None, reports: Path | None, seconds: float) -> list[StepReport]:
    if socket is not None and reports is None:
        return asyncio.run(recording.watch(socket, seconds))
    if reports is not None and socket is None:
        return recording.read(reports)
    raise ConfigurationError("either --engine-socket or --reports, or --kernels is required")
