"""A real Kubernetes API for tests and figures: found or started, and ended again.

Looked for in this order: the cluster that KUBECONFIG names; etcd and kube-apiserver in the folder
KUBEBUILDER_ASSETS; the folder `../shared/envtest` beside the repository, which brings controllers and played
nodes too.
"""

import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import yaml

from nightjar_benchmarks.ports import free_port
from nightjar_benchmarks.programs import run
from nightjar_benchmarks.stopping import undisturbed

# Tests make and delete objects: only clusters that call themselves throw-away ones.
_THROW_AWAY = ("kind-", "k3d-", "minikube", "test")
_START_SECONDS = 300
_POLL_SECONDS = 0.2
_STARTS = 3
# What another start may do without: a port that is taken, a machine that has no processor for it.
_PASSING_TROUBLES = ("address already in use", "was not ready after")


class NoControlPlaneError(RuntimeError):
    """There is none on this machine; the message says how to get one."""


@dataclass(frozen=True)
class ControlPlane:
    """A Kubernetes API server that may be filled and emptied at will."""

    kubeconfig: Path
    """Of an administrator."""
    has_controllers: bool
    """Whether Deployments get pods, and the children of what is deleted go. Not with KUBEBUILDER_ASSETS."""


@contextmanager
def running(root: Path, environ: Mapping[str, str] = os.environ, fake_nodes: int = 0) -> Iterator[ControlPlane]:
    """A control plane until the block ends; `root` is the repository.

    With `fake_nodes` pods are scheduled and become Ready, though nothing runs in them. NoControlPlaneError when
    there is nothing to start, ValueError when KUBECONFIG names a cluster that may be somebody's.
    """
    program = envtest(root)
    with ExitStack() as stack:
        if environ.get("KUBECONFIG"):
            yield _given(Path(environ["KUBECONFIG"]))
            return
        workdir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nj-cluster-")))
        if environ.get("KUBEBUILDER_ASSETS") and not fake_nodes:
            yield stack.enter_context(_from_assets(Path(environ["KUBEBUILDER_ASSETS"]), workdir))
        elif program is not None:
            yield stack.enter_context(_from_envtest(program, root / "out" / "envtest", workdir, fake_nodes))
        else:
            raise NoControlPlaneError(
                "a Kubernetes API is required, found none: set KUBECONFIG to a throw-away cluster (kind create"
                " cluster), or KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver (setup-envtest use -p path)"
            )


def envtest(root: Path) -> Path | None:
    """The program that runs clusters for tests, where it lies beside the repository at `root`."""
    program = root.resolve().parent / "shared" / "envtest" / "cluster.py"
    return program if program.exists() else None


def _given(kubeconfig: Path) -> ControlPlane:
    context = yaml.safe_load(kubeconfig.read_text(encoding="utf-8")).get("current-context") or ""
    if not context.startswith(_THROW_AWAY):
        raise ValueError(
            f"KUBECONFIG: a context that begins with one of {', '.join(_THROW_AWAY)} is required, because objects are"
            f" made and deleted there, found {context!r}; switch to a throw-away cluster or unset KUBECONFIG"
        )
    return ControlPlane(kubeconfig, has_controllers=True)


@contextmanager
def _from_envtest(program: Path, unpacked: Path, workdir: Path, fake_nodes: int) -> Iterator[ControlPlane]:
    # Unpacking takes longer than starting, and the binaries stay the same.
    run(sys.executable, str(program), "bin", "--dir", str(unpacked))
    nodes = ("--fake-nodes", str(fake_nodes)) if fake_nodes else ()
    with _up(program, unpacked.resolve() / "bin", workdir, nodes) as folder:
        yield ControlPlane(folder / "kubeconfig", has_controllers=True)


@contextmanager
def _up(program: Path, binaries: Path, workdir: Path, arguments: tuple[str, ...]) -> Iterator[Path]:
    # It chooses its ports before it listens, and somebody's connection may take one of them meanwhile.
    with ExitStack() as started:
        for attempt in range(1, _STARTS + 1):
            folder = workdir / f"start-{attempt}"
            folder.mkdir()
            (folder / "bin").symlink_to(binaries)
            started.callback(_down, program, folder)
            try:
                run(sys.executable, str(program), "up", "--dir", str(folder), *arguments)
            except RuntimeError as error:
                if attempt == _STARTS or not any(trouble in str(error) for trouble in _PASSING_TROUBLES):
                    raise
                started.close()
            else:
                break
        yield folder


def _down(program: Path, folder: Path) -> None:
    with undisturbed():
        run(sys.executable, str(program), "down", "--dir", str(folder))


@contextmanager
def _from_assets(assets: Path, workdir: Path) -> Iterator[ControlPlane]:
    port, clients, peers = free_port(), free_port(), free_port()
    token = secrets.token_hex(16)
    key = workdir / "service-account.key"
    run("openssl", "genrsa", "-out", str(key), "2048")
    tokens = workdir / "tokens.csv"
    tokens.write_text(f'{token},admin,admin,"system:masters"\n')
    tokens.chmod(0o600)
    etcd = (
        f"--data-dir={workdir / 'etcd'}",
        f"--listen-client-urls=http://127.0.0.1:{clients}",
        f"--advertise-client-urls=http://127.0.0.1:{clients}",
        f"--listen-peer-urls=http://127.0.0.1:{peers}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
        f"--initial-cluster=default=http://127.0.0.1:{peers}",
        "--unsafe-no-fsync",
    )
    server = (
        f"--etcd-servers=http://127.0.0.1:{clients}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={workdir}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
    )
    with _program(assets / "etcd", etcd, workdir), _program(assets / "kube-apiserver", server, workdir) as process:
        _await_ready(process, f"https://127.0.0.1:{port}", token, workdir)
        yield ControlPlane(_write_kubeconfig(workdir, port, token), has_controllers=False)


@contextmanager
def _program(path: Path, arguments: tuple[str, ...], workdir: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (workdir / f"{path.name}.log").open("wb") as log:
        process = subprocess.Popen([str(path), *arguments], stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        with undisturbed():
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await_ready(process: subprocess.Popen[bytes], url: str, token: str, workdir: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        if _answers(f"{url}/readyz", token):
            return
        time.sleep(_POLL_SECONDS)
    log = (workdir / "kube-apiserver.log").read_text(encoding="utf-8", errors="replace").splitlines()
    raise RuntimeError("kube-apiserver was not ready; its last log lines:\n" + "\n".join(log[-15:]))


def _answers(url: str, token: str) -> bool:
    try:
        # Its certificate is made by itself, while we wait.
        with httpx.Client(verify=False, trust_env=False, timeout=2) as client:  # noqa: S501 - loopback
            return client.get(url, headers={"Authorization": f"Bearer {token}"}).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


def _write_kubeconfig(workdir: Path, port: int, token: str) -> Path:
    cluster = {"server": f"https://127.0.0.1:{port}", "certificate-authority": str(workdir / "apiserver.crt")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": "default"}}],
    }
    path = workdir / "kubeconfig"
    path.write_text(json.dumps(document))
    path.chmod(0o600)
    return path
