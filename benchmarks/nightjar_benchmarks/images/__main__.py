"""`python -m nightjar_benchmarks.images`: build what is missing, print what there is and what is in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.images.build import build, build_twice
from nightjar_benchmarks.images.inventory import FOLDER, Entry, inventory

Identities = Sequence[tuple[str, str, str]]
"""Of each image: its name, the digest of one build, the digest of another."""


def main(
    *,
    twice: Annotated[bool, typer.Option("--twice", help="Build every image a second time, too, and compare.")] = False,
) -> None:
    """Build the images of operator, sidecar and engine (vLLM's CPU build), without a registry."""
    root, console = Path.cwd(), Console(highlight=False)
    try:
        if twice:
            _compare(root, console)
        else:
            entries = inventory(root, build(root, _say))
            console.print(table(entries), f"Digests and bills of materials: {FOLDER}/images.json", sep="")
    except ConfigurationError as error:
        typer.echo(f"make images: {error}", err=True)
        raise typer.Exit(2) from error


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _compare(root: Path, console: Console) -> None:
    """Exit code 1 when two builds differ: then the first stays under its digest, to be looked at."""
    found = build_twice(root, _say)
    console.print(comparison(found))
    if any(one != other for _, one, other in found):
        raise typer.Exit(1)


def comparison(found: Identities) -> Table:
    """Within 80 columns."""
    made = Table("image", "ID", "built again", box=None)
    for image, one, other in found:
        made.add_row(image, _short(one), "the same" if one == other else _short(other))
    return made


def table(entries: list[Entry]) -> Table:
    """Within 80 columns; whole digests are in the record."""
    made = Table("image", "ID", box=None)
    for name in ("MB", "packages"):
        made.add_column(name, justify="right")
    for one in entries:
        made.add_row(one.image, _short(one.id), f"{one.size / 1e6:.0f}", str(one.packages))
    return made


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


if __name__ == "__main__":
    typer.run(main)
