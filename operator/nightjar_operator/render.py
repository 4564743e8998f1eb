"""`nightjar render`: the manifests of a NightjarService, without a cluster."""

from pathlib import Path
from typing import Annotated

import typer

from nightjar_api import service as documents
from nightjar_api.errors import ConfigurationError
from nightjar_operator import notices, yaml_text
from nightjar_operator.manifests import Images, Manifest, Owner, manifests


def render(
    file: Annotated[Path, typer.Option("--file", "-f", help="A NightjarService document.")],
    engine_image: Annotated[
        str, typer.Option(help="For a service that names none, as the operator is told.")
    ] = "nightjar-engine",
    sidecar_image: Annotated[
        str, typer.Option(help="For a service that names none, as the operator is told.")
    ] = "nightjar-sidecar",
) -> None:
    """Print the Kubernetes objects that the operator would make of a document, as YAML."""
    try:
        service = documents.load(file)
        # The uid exists in a cluster only, so nothing is owned here.
        owner = Owner(service.metadata.namespace, service.metadata.name, uid="")
        found = manifests(service, owner, Images(engine_image, sidecar_image))
    except ConfigurationError as error:
        typer.echo(f"nightjar render: {error}", err=True)
        raise typer.Exit(1) from error
    for notice in notices.without_planning(service):
        typer.echo(f"nightjar render: {notice}", err=True)
    typer.echo(yaml_text.dump(*map(_unowned, found)), nl=False)


def _unowned(manifest: Manifest) -> Manifest:
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "ownerReferences"}
    return {**manifest, "metadata": metadata}
