"""`python -m nightjar_benchmarks.operator_figures.definition`: measure and record what the definition promises."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from nightjar_benchmarks.control_plane import ControlPlane, running
from nightjar_benchmarks.figures import source, table
from nightjar_benchmarks.operator_figures import api, fuzz, specs
from nightjar_benchmarks.records import Figure, clean_commit, measured, write
from nightjar_benchmarks.stopping import interrupted_by_signals
from nightjar_operator import crd

TOPIC = "operator"


def main(
    count: Annotated[int, typer.Option(min=1, help="Documents to try.")] = 2000,
    seed: Annotated[int, typer.Option(help="Equal seeds, equal documents.")] = 1,
) -> None:
    """Try documents against a real API server and record fuzzed_specs, fuzz_failures and crd_kib."""
    console = Console(highlight=False)
    root = Path.cwd()
    clean_commit(root)  # refuse before, not after, minutes of work
    with console.status(f"trying {count} documents"), interrupted_by_signals(), running(root) as plane:
        found = measure(root, plane, count, seed)
    record = measured(
        root,
        " ".join(["python -m nightjar_benchmarks.operator_figures.definition", *sys.argv[1:]]),
        found,
        datetime.now(UTC),
    )
    write(root, TOPIC, record)
    console.print(table(TOPIC, record), source(record, 0))


def measure(root: Path, plane: ControlPlane, count: int, seed: int) -> dict[str, Figure]:
    random = Random(seed)  # noqa: S311 - documents, no secrets
    with api.dry_run(plane.kubeconfig, api.definitions(root)) as server:
        outcome = fuzz.judge(server, (specs.document(random) for _ in range(count)))
    return {
        "fuzzed_specs": Figure(count, "specs", raw={"seed": seed, **outcome.counts}),
        "fuzz_failures": Figure(len(outcome.failures), "specs", raw=outcome.failures),
        "crd_kib": Figure(len(crd.text().encode()) / 1024, "KiB"),
    }


if __name__ == "__main__":
    typer.run(main)
