"""The chart in the hands of a real Helm."""

import functools
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "nightjar"
# Brings helm and kubectl too, unpacked once, where other tests unpack it.
ENVTEST = ROOT.resolve().parent / "shared" / "envtest" / "cluster.py"
UNPACKED = ROOT / "out" / "envtest"


class Tool:
    """A program for the command line; raises RuntimeError with what it said when it fails."""

    def __init__(self, path, *options, environ):
        self._command = [str(path), *options]
        self._environ = environ

    def __call__(self, *arguments, text=None, said=False, timeout=600):
        """What it prints; with `said` its remarks too."""
        done = subprocess.run(
            [*self._command, *map(str, arguments)],
            input=text,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            env=self._environ,
        )
        if done.returncode:
            raise RuntimeError(done.stderr + done.stdout)
        return done.stdout + (done.stderr if said else "")


def found(name):
    """The path of a program: beside the repository with a whole Kubernetes, whose version it fits, or on the PATH.

    Another Helm is named by the variable HELM (`make helm3`).
    """
    path = os.environ.get("HELM") if name == "helm" else None
    if path is None and ENVTEST.exists():
        subprocess.run([sys.executable, ENVTEST, "bin", "--dir", UNPACKED], check=True, capture_output=True)
        path = shutil.which(name, path=str(UNPACKED / "bin"))
    path = path or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is required, found none: install it, and put it on the PATH")
    return path


@pytest.fixture(scope="session")
def environ(tmp_path_factory):
    """Nothing of the person's own Helm or cluster is read or written."""
    home = tmp_path_factory.mktemp("helm")
    folders = {f"HELM_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return {name: text for name, text in os.environ.items() if name != "KUBECONFIG"} | folders


@pytest.fixture(scope="session")
def offline(environ):
    """Helm without a cluster."""
    return Tool(found("helm"), environ=environ)


@pytest.fixture(scope="session")
def render(offline, tmp_path_factory):
    """Objects that the chart makes of values."""
    folder = tmp_path_factory.mktemp("values")

    # The same values are looked at from many sides.
    @functools.cache
    def text(values, release, namespace, chart):
        file = folder / f"{secrets.token_hex(4)}.yaml"
        file.write_text(values)
        return offline("template", release, chart, "--namespace", namespace, "--values", file)

    def rendered(values=None, release="nightjar", namespace="nj", chart=CHART):
        documents = yaml.safe_load_all(text(yaml.safe_dump(values or {}), release, namespace, chart))
        return [document for document in documents if document is not None]

    return rendered


@pytest.fixture(scope="session")
def helm(control_plane, environ):
    return Tool(found("helm"), "--kubeconfig", control_plane.kubeconfig, environ=environ)


@pytest.fixture(scope="session")
def kubectl(control_plane, environ):
    return Tool(found("kubectl"), "--kubeconfig", control_plane.kubeconfig, environ=environ)


@pytest.fixture(scope="session")
def get(kubectl):
    """Objects as they are in the cluster; None for one that is not there."""

    def got(*arguments):
        text = kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
        answer = json.loads(text) if text.strip() else None
        return answer["items"] if answer is not None and answer["kind"] == "List" else answer

    return got


def eventually(check, what, seconds=600):
    """What `check` gives once that is true."""
    deadline = time.monotonic() + seconds
    while not (answer := check()):
        assert time.monotonic() < deadline, f"{what} within {seconds} s is required, it was not so"
        # Every look is a program that starts.
        time.sleep(0.5)
    return answer


@pytest.fixture
def until():
    return eventually


def is_unpublished(refusal):
    """The API server needs a moment to publish a new kind."""
    said = str(refusal)
    return any(
        lack in said
        for lack in ("no matches for kind", "could not find the requested resource", "doesn't have a resource type")
    )


@pytest.fixture
def unpublished():
    return is_unpublished


@pytest.fixture
def namespace(kubectl, get, control_plane):
    """A fresh one that takes only pods of the Pod Security Standard "restricted"."""
    name = f"nj-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
    if control_plane.has_controllers:
        # Pods are refused before it is there.
        eventually(lambda: get("serviceaccount", "default", "-n", name), "the namespace's service account")
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def ours(control_plane):
    """The control plane is one that was started here: it has no kubelet, and reaches this machine."""
    if not str(control_plane.kubeconfig).startswith("/tmp"):  # noqa: S108 - where those that we start live
        pytest.skip("an API server on this machine, without nodes, is required: unset KUBECONFIG")


@pytest.fixture
def installed(helm, kubectl, controllers, namespace, tmp_path):
    """Installs a release with values; what is left of it goes in the end."""
    releases = []

    def served():
        try:
            return kubectl("get", "nightjarservices.nightjar.dev", "-n", namespace, said=True)
        except RuntimeError as refusal:
            if is_unpublished(refusal):
                return None
            raise

    def install(values, release="nightjar", chart=CHART, options=("--take-ownership",)):
        """The definition may be there from an earlier release."""
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        releases.append(release)
        # Without --wait: nothing starts the pods here.
        helm("install", release, chart, "--namespace", namespace, "--values", file, *options)
        eventually(served, "NightjarService to be served")

    yield install
    for release in releases:
        helm("uninstall", release, "--namespace", namespace, "--ignore-not-found")


@pytest.fixture
def document():
    """Makes the text of a NightjarService."""
    return written


def written(name, **spec):
    return json.dumps(
        {
            "apiVersion": "nightjar.dev/v1alpha1",
            "kind": "NightjarService",
            "metadata": {"name": name},
            "spec": {"target": {"source": {"path": "/models/target"}}, **spec},
        }
    )
