"""What a release's pods would run, started here with the arguments and the permissions that the release gave them."""

import json
import os
import secrets
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest
import yaml

from nightjar_benchmarks.ports import free_port

NIGHTJAR = "from nightjar_api.cli import main; main()"
CRD = "nightjarservices.nightjar.dev"


class Operator:
    """`nightjar operator` as the release's pod would run it, listening on the loopback."""

    def __init__(self, process, log, url):
        self.process = process
        self.log = log
        self.url = url

    def ready(self):
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False, timeout=60).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False


@pytest.fixture
def running(kubectl, control_plane, get, namespace, tmp_path, until):
    """Starts what the Deployment's first container says, and then `more`, as its service account."""

    @contextmanager
    def start(*more):
        pod = get("deployment", "nightjar-operator", "-n", namespace)["spec"]["template"]["spec"]
        token = kubectl("create", "token", pod["serviceAccountName"], "-n", namespace).strip()
        config = yaml.safe_load(control_plane.kubeconfig.read_text())
        config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
        file = tmp_path / "kubeconfig"
        file.write_text(json.dumps(config))
        file.chmod(0o600)
        port = free_port()
        command = [sys.executable, "-c", NIGHTJAR, "operator", *pod["containers"][0]["args"], *more]
        environ = os.environ | {"POD_NAME": "operator-1", "KUBECONFIG": str(file)}
        log = tmp_path / "operator.log"
        with log.open("w") as file:
            command += ["--host", "127.0.0.1", "--port", str(port)]
            process = subprocess.Popen(command, env=environ, stdout=file, stderr=file)
        try:
            operator = Operator(process, log, f"http://127.0.0.1:{port}")
            until(operator.ready, "the operator to be ready")
            yield operator
        finally:
            process.terminate()
            process.wait(timeout=300)

    return start


@pytest.fixture
def elsewhere(kubectl):
    name = f"nj-{secrets.token_hex(4)}"
    kubectl("create", "namespace", name)
    yield name
    kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture
def ask(render, namespace):
    """Runs what the pod of `helm test` runs, against another address."""
    (pod,) = [one for one in render(namespace=namespace) if one["kind"] == "Pod"]
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python3", "-c"]
    program, address = container["args"]
    assert address == f"http://nightjar-operator.{namespace}.svc:8080/readyz"
    quick = program.replace("range(20)", "range(2)").replace("sleep(2)", "sleep(0.1)")

    def asked(url):
        command = [sys.executable, "-c", quick, url]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return asked


def test_the_operator_works_in_the_whole_cluster(document, kubectl, get, installed, running, elsewhere, ask, until):
    installed({})
    with running() as operator:
        kubectl("apply", "-n", elsewhere, "-f", "-", text=document("chat"))
        made = until(lambda: get("deployment", "chat", "-n", elsewhere), "the service's Deployment")
        containers = made["spec"]["template"]["spec"]["containers"]
        assert containers[0]["image"] == "nightjar-engine:0.1.0"
        leases = get("lease", "--all-namespaces", "--field-selector=metadata.name=nightjar-operator")
        assert "operator-1" in {lease["spec"]["holderIdentity"] for lease in leases}
        answer = ask(f"{operator.url}/readyz")
        assert (answer.returncode, answer.stdout) == (0, f"{operator.url}/readyz is ready\n")
    answer = ask(f"{operator.url}/readyz")
    assert answer.returncode == 1
    assert "an operator that is ready is required, found: " in answer.stderr


def test_the_operator_keeps_to_the_namespaces_it_was_given(
    document, kubectl, get, installed, namespace, running, elsewhere, until
):
    installed({"namespaces": [namespace]})
    account = f"system:serviceaccount:{namespace}:nightjar-operator"
    with pytest.raises(RuntimeError, match=r"(^|\n)no\n"):
        kubectl("auth", "can-i", "list", "njs", "-n", elsewhere, "--as", account)
    kubectl("apply", "-n", elsewhere, "-f", "-", text=document("chat"))
    with running():
        kubectl("apply", "-n", namespace, "-f", "-", text=document("chat"))
        until(lambda: get("deployment", "chat", "-n", namespace), "the service's Deployment")
        assert get("deployment", "chat", "-n", elsewhere) is None


@pytest.fixture
def certificate(namespace, tmp_path):
    """Files of a certificate for the operator's Service, which is its own authority."""
    name = f"nightjar-operator.{namespace}.svc"
    arguments = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=webhook -addext subjectAltName=DNS:{name}"
    files = [tmp_path / "tls.crt", tmp_path / "tls.key"]
    subprocess.run(
        ["openssl", *arguments.split(), "-out", files[0], "-keyout", files[1]],  # noqa: S607
        check=True,
        capture_output=True,
    )
    return files


def test_the_webhook_of_a_release_is_asked(document, kubectl, ours, installed, namespace, running, until, certificate):
    """The API server calls the Service by its name, at the chart's path, and trusts the authority of the values.

    Nothing brings it from a Service's address to a pod here, so the Service is made to point at this machine.
    """
    file, key = certificate
    own = {"secretName": "mine", "caBundle": file.read_text()}
    installed({"namespaces": [namespace], "webhook": {"enabled": True, "failurePolicy": "Fail", "certificate": own}})
    port = free_port()
    here = {"spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}}
    kubectl("patch", "service", "nightjar-operator", "-n", namespace, "--type=merge", "-p", json.dumps(here))
    there = {"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}
    hook = ("validatingwebhookconfiguration", f"{namespace}.nightjar-operator")
    kubectl("patch", *hook, "--type=json", "-p", json.dumps([there]))
    pointless = document("chat", draft={"method": "ngram"}, planner={"gammaMax": 1})

    def answer():
        try:
            return kubectl("create", "-n", namespace, "-f", "-", "--dry-run=server", text=pointless, said=True)
        except RuntimeError as refusal:
            return str(refusal)

    # The API server needs a moment to learn of the configuration, and later of who listens.
    until(lambda: 'failed calling webhook "validate.nightjar.dev"' in answer(), "the webhook to be asked")
    options = (f"--webhook-cert={file}", f"--webhook-key={key}", f"--webhook-port={port}")
    with running(*options):
        until(lambda: "Warning: spec.planner: no effect" in answer(), "the service to be admitted with a warning")


def test_who_edits_a_namespace_edits_its_services(kubectl, installed, namespace, until):
    installed({})
    kubectl("create", "rolebinding", "people", "-n", namespace, "--clusterrole=edit", "--user=ann")

    def may(verb, *options):
        try:
            return kubectl("auth", "can-i", verb, CRD, "-n", namespace, "--as=ann", *options).strip() == "yes"
        except RuntimeError:  # It ends with an error for `no`.
            return False

    # The roles are aggregated one after another.
    for what in (("create",), ("watch",), ("patch", "--subresource=scale")):
        until(lambda what=what: may(*what), f"{what} to be allowed")
    assert not may("patch", "--subresource=status")
