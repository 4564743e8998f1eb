"""Where things are in a pod."""

from pathlib import PurePosixPath

from nightjar_api.service import NightjarService
from nightjar_operator import pod

SOCKET_FOLDER = PurePosixPath("/run/nightjar")
SETTINGS_FOLDER = PurePosixPath("/etc/nightjar")
SETTINGS_FILE = "settings.json"
CACHE = PurePosixPath("/cache")
TMP = PurePosixPath("/tmp")  # noqa: S108 - a volume of the pod's own
SHM = PurePosixPath("/dev/shm")  # noqa: S108


def layout(service: NightjarService) -> pod.Layout:
    return pod.Layout(
        socket=SOCKET_FOLDER / "engine.sock",
        settings=SETTINGS_FOLDER / SETTINGS_FILE,
        status_port=service.spec.engine.port + 1,
        drain_seconds=pod.drain_seconds(service),
        host="0.0.0.0",  # noqa: S104 - the kubelet, the Service and Prometheus come from outside the pod
    )


def settings_name(owner_name: str) -> str:
    return f"{owner_name}-settings"


def claim_name(owner_name: str) -> str:
    return f"{owner_name}-cache"
