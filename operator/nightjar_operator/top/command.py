"""`nightjar top`: what sidecars do, live in a terminal."""

from pathlib import Path
from typing import Annotated

import typer


def top(
    address: Annotated[
        str | None,
        typer.Argument(help="host:port of a sidecar, a forwarded port for example; 127.0.0.1:8001 if nothing is said."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The document that `nightjar local` serves on this machine.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="All pods of a namespace, through the Kubernetes API.")
    ] = None,
    pod: Annotated[str | None, typer.Option(help="With --namespace: this pod alone, with all it says.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(envvar="KUBECONFIG", help="For --namespace.")] = None,
) -> None:
    """Show what sidecars do: load, the plan and what it rests on, memory, what happened; once when not a terminal."""
    import asyncio

    from rich.console import Console
    from rich.markup import escape

    from nightjar_api.errors import ConfigurationError
    from nightjar_operator.top import screen

    try:
        asyncio.run(screen.run(screen.Wanted(address, file, namespace, pod, kubeconfig), Console(highlight=False)))
    except KeyboardInterrupt:
        return
    except ConfigurationError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]error[/red] {escape(str(error))}")
        raise typer.Exit(1) from error
