"""`nightjar local` with doubles for vLLM and the sidecar, as a program that takes signals."""

import sys
from pathlib import Path

import typer

from nightjar_operator.local import programs
from nightjar_operator.local.command import local

FOLDER = Path(__file__).parent


def doubles() -> programs.Programs:
    def program(name: str) -> tuple[str, str]:
        return (sys.executable, str(FOLDER / name))

    return programs.Programs(program("engine_double.py"), program("sidecar_double.py"), {})


programs.installed = doubles
typer.run(local)
