"""`python -m nightjar_benchmarks.images`: build what is missing, print what there is and what is in it."""

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.images.build import build
from nightjar_benchmarks.images.inventory import FOLDER, Entry, inventory


def main() -> None:
    """Build the images of operator, sidecar and engine (vLLM's CPU build), without a registry."""
    root = Path.cwd()
    try:
        entries = inventory(root, build(root, lambda line: typer.echo(line, err=True)))
    except ConfigurationError as error:
        typer.echo(f"make images: {error}", err=True)
        raise typer.Exit(2) from error
    Console(highlight=False).print(table(entries), f"Digests and bills of materials: {FOLDER}/images.json", sep="")


def table(entries: list[Entry]) -> Table:
    """Within 80 columns; whole digests are in the record."""
    made = Table("image", "ID", box=None)
    for name in ("MB", "packages"):
        made.add_column(name, justify="right")
    for one in entries:
        short = one.id.removeprefix("sha256:")[:12]
        made.add_row(one.image, short, f"{one.size / 1e6:.0f}", str(one.packages))
    return made


if __name__ == "__main__":
    typer.run(main)
