"""What must hold before anything is started; each refusal names the field."""

import socket
from pathlib import Path

from nightjar_api.errors import ConfigurationError
from nightjar_api.service import NightjarService
from nightjar_api.sources import ModelSource

# sizeof(sockaddr_un.sun_path) on Linux, less the closing zero.
_SOCKET_PATH_BYTES = 107


def check_models(service: NightjarService) -> None:
    """Models on this machine exist; what lies on a hub or in an object store is left to vLLM."""
    _refuse_no_model("spec.target.source", service.spec.target.source)
    if service.spec.draft is not None and service.spec.draft.source is not None:
        _refuse_no_model("spec.draft.source", service.spec.draft.source)


def check_port(port: int, field: str) -> None:
    """ConfigurationError when nothing could listen on `port` of the loopback."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are only fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigurationError(
                f"{field}: a free port on 127.0.0.1 is required, found {port}: {error.strerror};"
                f" stop what listens there or change spec.engine.port"
            ) from error


def check_socket(path: Path) -> None:
    length = len(str(path).encode())
    if length > _SOCKET_PATH_BYTES:
        raise ConfigurationError(
            f"the engine's socket requires a path of at most {_SOCKET_PATH_BYTES} bytes, found {length}:"
            f" {path}; set TMPDIR to a shorter folder"
        )


def _refuse_no_model(field: str, source: ModelSource) -> None:
    if source.pvc is not None:
        raise ConfigurationError(
            f"{field}.pvc: a model this machine can read is required, found the volume claim"
            f" {source.pvc.claim_name!r}, which exists in a cluster only; name its folder with {field}.path"
        )
    if source.path is not None and not (Path(source.path) / "config.json").is_file():
        raise ConfigurationError(
            f"{field}.path: a folder with a model in the Hugging Face format (config.json) is required,"
            f" found {source.path!r} seen from {Path.cwd()}"
        )
