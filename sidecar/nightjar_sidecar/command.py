"""`nightjar sidecar`: plans the speculative length of one engine."""

from pathlib import Path
from typing import Annotated

import typer


def sidecar(
    engine_socket: Annotated[Path, typer.Option(help="The unix socket on which the engine serves its control plane.")],
    settings: Annotated[
        Path, typer.Option(help="The settings file; it is followed, so changes apply without a restart.")
    ],
    host: Annotated[
        str, typer.Option(help="Where the page, /metrics, /healthz, /readyz and /status listen; 0.0.0.0 in a pod.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Their port; 0 takes any free one.")] = 9091,
) -> None:
    """Plan the speculative length of one engine: learn from its steps, send it plans, show what it does.

    The engine may start later, stop and come back; meanwhile it serves with its fallback length.
    """
    import asyncio
    import logging

    from nightjar_api.errors import ConfigurationError
    from nightjar_sidecar.loop import Options, run_until_signalled

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        asyncio.run(run_until_signalled(Options(engine_socket, settings, host, port)))
    except ConfigurationError as error:
        typer.echo(f"nightjar sidecar: {error}", err=True)
        raise typer.Exit(2) from error
