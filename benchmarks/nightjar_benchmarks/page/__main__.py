"""`python -m nightjar_benchmarks.page`: measure, and with --record record, topic `page`."""

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nightjar_benchmarks import records
from nightjar_benchmarks.compare.command import figure_table
from nightjar_benchmarks.page.browser import NoBrowserError
from nightjar_benchmarks.page.fake_engine import tide
from nightjar_benchmarks.page.measure import cost, first_paint, weight
from nightjar_benchmarks.page.stage import stage
from nightjar_benchmarks.stopping import interrupted_by_signals

TOPIC = "page"
_LOADS = 7
_LEARNING_SECONDS = 60.0
_ROUNDS = 3


def main(
    *,
    record: Annotated[
        bool, typer.Option("--record", help="Write the figures to benchmarks/results/page.json.")
    ] = False,
    seconds: Annotated[float, typer.Option(min=1, help="How long the page is open, and closed, at a time.")] = 30.0,
) -> None:
    """Measure the page of a sidecar that has learnt from a minute of swelling and ebbing load of a fake engine."""
    console = Console(highlight=False)
    root = Path.cwd()
    if record:
        records.clean_commit(root)  # refuse before, not after, minutes of work
    try:
        with (
            console.status("measuring the page"),
            interrupted_by_signals(),
            stage() as there,
            there.engine(lambda elapsed: tide(elapsed) if elapsed < _LEARNING_SECONDS else 0),
        ):
            time.sleep(_LEARNING_SECONDS)
            found = {
                "page_kib": weight(there),
                "first_paint_ms": first_paint(there, _LOADS),
                "cpu_share": cost(there, seconds, _ROUNDS),
            }
    except NoBrowserError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error {error}")
        sys.exit(1)
    if record:
        command = f"python -m nightjar_benchmarks.page --seconds {seconds:g} --record"
        records.write(root, TOPIC, records.measured(root, command, found, datetime.now(UTC)))
    console.print(figure_table(found))


if __name__ == "__main__":
    typer.run(main)
