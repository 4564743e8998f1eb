"""The validating webhook, asked by a real API server."""

import asyncio
import base64
import ssl
import subprocess

import pytest
from kubernetes.aio.dynamic.exceptions import DynamicApiError

from nightjar_benchmarks.operator_figures.cluster_side import service
from nightjar_benchmarks.ports import free_port
from nightjar_operator.kinds import Kind
from nightjar_operator.settings import Webhook
from nightjar_operator.webhook import ID

CONFIGURATION = Kind(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations"
)


def certify(folder):
    """A certificate for the loopback that is its own authority; gives its PEM text."""
    arguments = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=webhook -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        ["openssl", *arguments.split(), "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],  # noqa: S607
        check=True,
        capture_output=True,
    )
    return (folder / "tls.crt").read_bytes()


def configuration(world, port, authority):
    hook = {
        "name": "validate.nightjar.dev",
        "clientConfig": {
            "url": f"https://127.0.0.1:{port}/{ID}",
            "caBundle": base64.b64encode(authority).decode(),
        },
        "rules": [
            {
                "apiGroups": ["nightjar.dev"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["nightjarservices"],
            }
        ],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": CONFIGURATION.api_version,
        "kind": CONFIGURATION.name,
        "metadata": {"name": f"webhook-{world.namespace}"},
        "webhooks": [hook],
    }


@pytest.fixture
async def webhook(world, tmp_path, control_plane):
    if not str(control_plane.kubeconfig).startswith("/tmp"):  # noqa: S108 - where those that we start live
        pytest.skip("an API server on this machine is required: unset KUBECONFIG")
    authority = certify(tmp_path)
    port = free_port()
    world.start(webhook=Webhook(port, tmp_path / "tls.crt", tmp_path / "tls.key"))
    made = configuration(world, port, authority)
    try:
        await world.admin.apply(CONFIGURATION, made)
        yield port, tmp_path
    finally:
        await world.admin._request(
            "delete", f"/apis/admissionregistration.k8s.io/v1/{CONFIGURATION.plural}/{made['metadata']['name']}"
        )


def served(port):
    return ssl.get_server_certificate(("127.0.0.1", port))


async def test_what_only_looks_wrong_is_said_to_who_applies_it(world, webhook):
    """Warnings are what no rule of the definition can give."""
    body = service(world.namespace, "chat", draft={"method": "ngram"}, planner={"gammaMax": 1})
    path = f"/apis/nightjar.dev/v1alpha1/namespaces/{world.namespace}/nightjarservices"

    async def warned():
        try:
            answer = await world.admin._dynamic.request("post", path, body=body, serialize=False)
        except DynamicApiError:  # Nobody listens yet, and the configuration says that this refuses.
            return None
        return answer.headers.get("Warning", "none")

    warning = await world.until(warned, "a service to be admitted")
    assert "spec.planner: no effect" in warning


async def test_a_renewed_certificate_is_served_without_a_restart(world, webhook):
    port, folder = webhook

    async def listens():
        try:
            return await asyncio.to_thread(served, port)
        except OSError:
            return None

    first = await world.until(listens, "the webhook to listen")
    certify(folder)
    assert await listens() not in (None, first)
