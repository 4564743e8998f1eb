"""A whole Kubernetes of one node, on which pods really run. It takes root, and there is one on a machine at a time."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.control_plane import NoControlPlaneError, envtest
from nightjar_benchmarks.programs import require_programs, run
from nightjar_benchmarks.stopping import undisturbed

_PACKAGES = {"runc": "runc", "ip": "iproute2", "nft": "nftables"}


@dataclass(frozen=True)
class NodeCluster:
    """A cluster of one node; its pods and Services are reachable from this machine, by address."""

    folder: Path
    node: str = "node-1"

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator."""
        return self.folder / "kubeconfig"

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return run(str(self.folder / "bin" / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments, given=given)

    def helm(self, *arguments: str, given: str | None = None) -> str:
        """Nothing of the person's own Helm is read or written."""
        environ = {f"HELM_{name}_HOME": str(self.folder / "helm" / name) for name in ("CACHE", "CONFIG", "DATA")}
        program = str(self.folder / "bin" / "helm")
        return run(program, f"--kubeconfig={self.kubeconfig}", *arguments, given=given, environ=environ)

    def json(self, *arguments: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.kubectl(*arguments, "--output=json"))
        return found

    def load(self, image: str) -> None:
        """An image of buildah's becomes one of the node's, unless it is already."""
        if image in self._ctr("images", "list", "--quiet").split():
            return
        archive = self.folder / "image.tar"
        try:
            run("buildah", "push", "--quiet", image, f"docker-archive:{archive}:{image}")
            self._ctr("images", "import", str(archive))
        finally:
            archive.unlink(missing_ok=True)

    def kill(self, container: str) -> None:
        """End a container as the kernel would, from its ID."""
        self._ctr("tasks", "kill", "--signal", "SIGKILL", container)

    def containers(self) -> set[str]:
        """IDs of all that have a process; the kubelet sweeps up what is left of ended ones once a minute."""
        return set(self._ctr("tasks", "list", "--quiet").split())

    def _ctr(self, *arguments: str) -> str:
        socket = self.folder / "run" / "containerd.sock"
        return run(str(self.folder / "bin" / "ctr"), "--address", str(socket), "-n", "k8s.io", *arguments)


def require(root: Path) -> Path:
    """The program that runs such clusters; NoControlPlaneError when there can be none here."""
    program = envtest(root)
    if program is None:
        raise NoControlPlaneError(
            "a cluster whose node runs pods is required, found no ../shared/envtest beside the repository"
        )
    if os.geteuid() != 0:
        raise NoControlPlaneError("root is required, to run a node with a network of its own, found another user")
    try:
        require_programs(_PACKAGES)
    except ConfigurationError as error:
        raise NoControlPlaneError(str(error)) from error
    return program


@contextmanager
def running(root: Path) -> Iterator[NodeCluster]:
    """One until the block ends; `root` is the repository. NoControlPlaneError when there can be none here."""
    program = require(root)
    # It stays, for the images in it: vLLM's takes minutes to load.
    folder = (root / "out" / "node").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # What a run that was killed has left.
    _down(program, folder)
    try:
        run(sys.executable, str(program), "up", "--node", "--dir", str(folder))
        yield NodeCluster(folder)
    finally:
        _down(program, folder)


def _down(program: Path, folder: Path) -> None:
    with undisturbed():
        run(sys.executable, str(program), "down", "--dir", str(folder))
