"""What the API server says to an object, without keeping it: every request here is a dry run."""

import json
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml
from kubernetes import client, config

_APPLY = {"Content-Type": "application/apply-patch+yaml"}
_SERVED_SECONDS = 300
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Answer:
    """`found` is the object as the server would keep it; None when it was refused, with the reason in `refusal`."""

    found: dict[str, Any] | None
    refusal: str


class DryRun:
    """Creates and applies objects in the namespace `default`, and keeps none of them."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def create(self, manifest: dict[str, Any]) -> Answer:
        """As `kubectl create` does it: unknown fields are refused."""
        parameters = {"dryRun": "All", "fieldValidation": "Strict"}
        return _answer(self._http.post(_collection(manifest), params=parameters, json=manifest))

    def apply(self, manifest: dict[str, Any]) -> Answer:
        """Server-side, as the operator does it."""
        parameters = {"dryRun": "All", "fieldValidation": "Strict", "fieldManager": "nightjar", "force": "true"}
        path = f"{_collection(manifest)}/{manifest['metadata']['name']}"
        return _answer(self._http.patch(path, params=parameters, content=json.dumps(manifest), headers=_APPLY))


@contextmanager
def dry_run(kubeconfig: Path, definitions: Sequence[dict[str, Any]]) -> Iterator[DryRun]:
    """The server of `kubeconfig`, made to know the kinds of `definitions`; those stay there."""
    settings = client.Configuration()
    config.load_kube_config(str(kubeconfig), client_configuration=settings)
    with _http(settings) as http:
        for definition in definitions:
            _install(http, definition)
        for definition in definitions:
            _await_served(http, definition)
        yield DryRun(http)


def _install(http: httpx.Client, definition: dict[str, Any]) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}"
    parameters = {"fieldManager": "nightjar", "force": "true"}
    http.patch(path, params=parameters, content=json.dumps(definition), headers=_APPLY).raise_for_status()


def _http(settings: client.Configuration) -> httpx.Client:
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    # Clusters for tests make certificates that lack an extension which Python 3.13 wants to see.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    token = settings.get_api_key_with_prefix("BearerToken", alias="authorization")
    headers = {"Authorization": token} if token else {}
    return httpx.Client(base_url=settings.host, verify=context, headers=headers, timeout=300, trust_env=False)


def _await_served(http: httpx.Client, definition: dict[str, Any]) -> None:
    # The server needs a moment to publish a new kind.
    group, version = definition["spec"]["group"], definition["spec"]["versions"][0]["name"]
    path = f"/apis/{group}/{version}/namespaces/default/{definition['spec']['names']['plural']}"
    deadline = time.monotonic() + _SERVED_SECONDS
    while time.monotonic() < deadline:
        if http.get(path).status_code == httpx.codes.OK:
            return
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(f"{path} is required to be served, it is not")


def _collection(manifest: dict[str, Any]) -> str:
    version = manifest.get("apiVersion", "")
    prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
    kind = manifest["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"{prefix}/namespaces/default/{plural}"


def _answer(response: httpx.Response) -> Answer:
    if response.is_success:
        return Answer(response.json(), "")
    try:
        return Answer(None, response.json()["message"])
    except ValueError:
        return Answer(None, response.text)


def definitions(root: Path) -> list[dict[str, Any]]:
    """NightjarService as it is checked in, and the kind of the Prometheus operator that manifests may contain."""
    ours = yaml.safe_load((root / "crds" / "nightjarservices.nightjar.dev.yaml").read_text(encoding="utf-8"))
    return [ours, _POD_MONITOR]


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# The fields of a PodMonitor that we write; the whole definition is many times as large, and not ours.
_ENDPOINT = _object(
    port={"type": "string"},
    path={"type": "string"},
    interval={"type": "string", "pattern": r"^(0|(([0-9]+)m)?(([0-9]+)s)?)$"},
)
_SELECTOR = _object(matchLabels={"type": "object", "additionalProperties": {"type": "string"}})
_POD_MONITOR = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podmonitors.monitoring.coreos.com",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests only"},
    },
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"kind": "PodMonitor", "plural": "podmonitors", "singular": "podmonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": _object(
                        spec=_object(selector=_SELECTOR, podMetricsEndpoints={"type": "array", "items": _ENDPOINT})
                    )
                },
            }
        ],
    },
}
