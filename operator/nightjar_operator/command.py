"""`nightjar operator`: serves the NightjarServices of a cluster."""

from pathlib import Path
from typing import Annotated

import typer


def operator(  # noqa: PLR0913, PLR0917 - a command takes one argument for each option
    engine_image: Annotated[
        str, typer.Option(envvar="NIGHTJAR_ENGINE_IMAGE", help="The engine's image, for services that name none.")
    ],
    sidecar_image: Annotated[
        str, typer.Option(envvar="NIGHTJAR_SIDECAR_IMAGE", help="The sidecar's image, for services that name none.")
    ],
    namespace: Annotated[
        list[str] | None,
        typer.Option(envvar="NIGHTJAR_NAMESPACES", help="Work only here; may be repeated. All if unset."),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(envvar="NIGHTJAR_LEASE", help="NAMESPACE/NAME of a Lease: of several operators its holder works."),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option(envvar="POD_NAME", help="This process in the Lease and in Events; the host's name if unset."),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(envvar="KUBECONFIG", help="A kubeconfig; the pod's service account if unset.")
    ] = None,
    host: Annotated[str, typer.Option(help="Where /healthz, /readyz and /metrics listen.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(min=0, max=65535, help="Their port; 0 takes any free one.")] = 8080,
    workers: Annotated[int, typer.Option(help="Services reconciled at once.")] = 2,
    resync_seconds: Annotated[float, typer.Option(help="How often everything is listed and looked at.")] = 300.0,
    poll_seconds: Annotated[float, typer.Option(help="How often each sidecar is asked.")] = 10.0,
    webhook_cert: Annotated[
        Path | None, typer.Option(help="PEM certificate of the validating webhook; without it there is none.")
    ] = None,
    webhook_key: Annotated[Path | None, typer.Option(help="Its key. Both are read again when they change.")] = None,
    webhook_port: Annotated[int, typer.Option(min=1, max=65535, help="Its port.")] = 9443,
    gpu_memory_gib: Annotated[
        int | None,
        typer.Option(min=1, help="Memory of one GPU of the cluster: it then warns of models that do not fit."),
    ] = None,
) -> None:
    """Serve the NightjarServices of a cluster: make their objects, keep them so, and say how they are.

    SIGTERM finishes what is under way, gives the lease back and ends.
    """
    import asyncio
    import logging
    import socket

    from nightjar_api.errors import ConfigurationError
    from nightjar_operator import settings
    from nightjar_operator.manifests import Images
    from nightjar_operator.process import LeaseLostError, run_until_signalled

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    # Kopf tells of every event it hands over, and that it leaves signals to us.
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)
    try:
        made = settings.Settings(
            images=Images(engine_image, sidecar_image),
            namespaces=tuple(namespace or ()),
            kubeconfig=kubeconfig,
            host=host,
            port=port,
            workers=workers,
            resync_seconds=resync_seconds,
            poll_seconds=poll_seconds,
            lease=settings.lease(lease) if lease is not None else None,
            identity=identity or socket.gethostname(),
            webhook=settings.webhook(webhook_cert, webhook_key, webhook_port, gpu_memory_gib),
        )
        asyncio.run(run_until_signalled(made))
    except (ConfigurationError, LeaseLostError) as error:
        typer.echo(f"nightjar operator: {error}", err=True)
        raise typer.Exit(2 if isinstance(error, ConfigurationError) else 1) from error
