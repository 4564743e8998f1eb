"""Where the Kubernetes API is and who we are, for our own client and for Kopf's."""

import os
from pathlib import Path

import kopf
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from nightjar_api.errors import ConfigurationError


async def configuration(kubeconfig: Path | None) -> Configuration:
    """From `kubeconfig`; without one from the pod's service account, else from the person's own kubeconfig.

    ConfigurationError when there is none, or none that can be read.
    """
    made = Configuration()
    try:
        if kubeconfig is not None or not _in_cluster(made):
            file = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
            _require_one(str(file))
            await config.load_kube_config(config_file=str(file), client_configuration=made)
    except (config.ConfigException, OSError) as error:
        raise ConfigurationError(
            f"--kubeconfig: access to a Kubernetes API is required, found {kubeconfig or 'none'}: {error};"
            f" run in a pod with a service account, or name a kubeconfig"
        ) from error
    return made


def _require_one(files: str) -> None:
    """The library takes a file that is not there for an empty one."""
    if not any(Path(file).expanduser().is_file() for file in files.split(os.pathsep)):
        raise FileNotFoundError(f"no file {files}")


def _in_cluster(made: Configuration) -> bool:
    try:
        config.load_incluster_config(client_configuration=made)
    except config.ConfigException:
        return False
    return True


async def for_kopf(made: Configuration) -> kopf.ConnectionInfo:
    """The same connection as Kopf wants it; asked for again when the API server refuses an old token."""
    scheme, _, token = (await made.get_api_key_with_prefix("BearerToken") or "").partition(" ")
    return kopf.ConnectionInfo(
        server=made.host,
        ca_path=made.ssl_ca_cert,
        insecure=not made.verify_ssl,
        scheme=scheme.capitalize() or None,
        token=token.strip() or None,
        certificate_path=made.cert_file,
        private_key_path=made.key_file,
    )
