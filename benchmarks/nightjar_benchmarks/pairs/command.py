"""`nightjar pair`: make a target and a draft without downloading anything."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from nightjar_benchmarks.pairs.make import make_pair
from nightjar_benchmarks.pairs.shapes import SHAPES


def pair(
    folder: Annotated[Path, typer.Argument(help="Where `target` and `draft` are written.")],
    shape: Annotated[str, typer.Option(help=f"One of: {', '.join(SHAPES)}.")] = "tiny",
    agreement: Annotated[
        str, typer.Option(help="How often the draft is right, per region of the vocabulary.")
    ] = "0.9,0.6",
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same bytes.")] = 0,
) -> None:
    """Make a pair of models, target and draft, in the Hugging Face format."""
    if shape not in SHAPES:
        raise typer.BadParameter(f"--shape: one of {', '.join(SHAPES)} is required, found {shape!r}")
    try:
        made = make_pair(folder, SHAPES[shape], _shares(agreement), seed)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise typer.BadParameter(
            f"a folder that can be written is required, found {folder}: {error.strerror}"
        ) from error
    console = Console()
    for name, model in (("target", made.shape.target), ("draft", made.shape.draft)):
        millions = model.parameters(made.shape.vocab_size) / 1e6
        console.print(f"{name}: {folder / name} ({millions:.1f} M parameters)", soft_wrap=True)


def _shares(agreement: str) -> list[float]:
    try:
        return [float(share) for share in agreement.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"--agreement: shares from 0 to 1 with commas between are required, found {agreement!r}"
        ) from error
