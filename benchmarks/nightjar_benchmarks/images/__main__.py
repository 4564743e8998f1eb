"""`python -m nightjar_benchmarks.images`: build what is missing, print what the images are called."""

from pathlib import Path

import typer

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.images.build import build


def main() -> None:
    """Build the images of operator, sidecar and engine (vLLM's CPU build), without a registry."""
    try:
        images = build(Path.cwd(), lambda line: typer.echo(line, err=True))
    except ConfigurationError as error:
        typer.echo(f"make images: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo("\n".join(images.all()))


if __name__ == "__main__":
    typer.run(main)
