"""The `nightjar` command: a root that collects what the installed components offer.

Components must not import each other, so each declares its commands as entry points of the group
`nightjar.commands` in pyproject.toml; an entry point names a plain function that typer turns into a command.
"""

import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer

# A command whose libraries are missing takes any arguments, only to say so.
_ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def build(command: str | None = None) -> typer.Typer:
    """All commands, or `command` alone if there is one of that name: a sidecar loads no benchmark."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
    app.callback()(_root)
    entries = {entry.name: entry for entry in entry_points(group="nightjar.commands")}
    for name in [command] if command in entries else sorted(entries):
        try:
            app.command(name)(entries[name].load())
        except ModuleNotFoundError as error:
            app.command(name, context_settings=_ANY_ARGUMENTS)(_unavailable(entries[name], error))
    return app


def main() -> None:
    build(sys.argv[1] if len(sys.argv) > 1 else None)()


def _root() -> None:
    """Nightjar serves large language models with speculative decoding that adapts by itself."""


def _unavailable(entry: EntryPoint, error: ModuleNotFoundError) -> Callable[[], Any]:
    component = entry.module.split(".")[0]
    if error.name is None or error.name.startswith("nightjar_"):
        raise error
    extra = component.removeprefix("nightjar_")

    def refuse() -> None:
        typer.echo(
            f"nightjar {entry.name} requires the Python module {error.name}, found none; install nightjar[{extra}]",
            err=True,
        )
        raise typer.Exit(1)

    refuse.__doc__ = f"Needs nightjar[{extra}], which is not installed."
    return refuse
