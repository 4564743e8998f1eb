"""What the operator process is told, once, at its start."""

import re
from dataclasses import dataclass
from pathlib import Path

from nightjar_api.errors import ConfigurationError
from nightjar_operator.manifests import Images

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Webhook:
    """Where the validating webhook listens, with which certificate; the files are read again when they change."""

    port: int
    certificate: Path
    key: Path
    gpu_memory_bytes: int | None = None
    """Of one GPU of the cluster, to judge whether models fit; None when it is not known."""

    def __post_init__(self) -> None:
        for option, path in (("--webhook-cert", self.certificate), ("--webhook-key", self.key)):
            if not path.is_file():
                raise ConfigurationError(f"{option}: a PEM file is required, found {path}: it is not there")


@dataclass(frozen=True)
class Settings:
    """Validated when made; ConfigurationError names the option."""

    images: Images
    namespaces: tuple[str, ...] = ()
    """Those to work in; empty: all."""
    kubeconfig: Path | None = None
    """None: the pod's service account."""
    host: str = "0.0.0.0"  # noqa: S104 - the kubelet and Prometheus come from outside the pod
    port: int = 8080
    """Of /healthz, /readyz and /metrics; 0: any free one."""
    workers: int = 2
    """Services reconciled at once. More of them wait for the API server longer, each."""
    resync_seconds: float = 300.0
    """How often everything is listed and looked at, beside what watching tells."""
    poll_seconds: float = 10.0
    """How often each sidecar is asked."""
    lease: tuple[str, str] | None = None
    """Namespace and name of the Lease of which one operator at a time is the holder; None: there is only one."""
    identity: str = "nightjar-operator"
    """Names this process in the Lease and in Events."""
    webhook: Webhook | None = None

    def __post_init__(self) -> None:
        for option, image in (("--engine-image", self.images.engine), ("--sidecar-image", self.images.sidecar)):
            _require(bool(image.strip()), option, "the name of an image", image)
        for namespace in self.namespaces:
            _require(_NAME.fullmatch(namespace) is not None, "--namespace", "the name of a namespace", namespace)
        _require(self.workers >= 1, "--workers", "at least 1", self.workers)
        _require(self.resync_seconds >= 1, "--resync-seconds", "at least 1", self.resync_seconds)
        _require(self.poll_seconds >= 1, "--poll-seconds", "at least 1", self.poll_seconds)


def lease(text: str) -> tuple[str, str]:
    """NAMESPACE/NAME; ConfigurationError for anything else."""
    namespace, _, name = text.partition("/")
    both = _NAME.fullmatch(namespace) is not None and _NAME.fullmatch(name) is not None
    _require(both, "--lease", "NAMESPACE/NAME", text)
    return namespace, name


def webhook(certificate: Path | None, key: Path | None, port: int, gpu_memory_gib: int | None) -> Webhook | None:
    """None without both files; ConfigurationError with one of them."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "--webhook-cert" if certificate is None else "--webhook-key"
        raise ConfigurationError(f"{missing}: both --webhook-cert and --webhook-key are required, found one")
    return Webhook(port, certificate, key, None if gpu_memory_gib is None else gpu_memory_gib * 2**30)


def _require(holds: bool, option: str, what: str, found: object) -> None:  # noqa: FBT001 - a check reads as a sentence
    if not holds:
        raise ConfigurationError(f"{option}: {what} is required, found {found!r}")
