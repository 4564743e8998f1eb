"""The custom resource definition, generated from the typed model; `nightjar crd` prints it."""

from typing import Annotated, Any

import typer

from nightjar_api import names
from nightjar_api.service import API_VERSION, KIND, NightjarServiceSpec
from nightjar_api.status import NightjarServiceStatus
from nightjar_operator import reference, yaml_text
from nightjar_operator.schema import structural

_GROUP, _, _VERSION = API_VERSION.partition("/")
_PLURAL = "nightjarservices"


def crd(
    *, as_page: Annotated[bool, typer.Option("--reference", help="As a page for people, in Markdown.")] = False
) -> None:
    """Print the custom resource definition of NightjarService."""
    typer.echo(reference.page(_document()) if as_page else text(), nl=False)


def text() -> str:
    head = "# Generated from the typed model by `make crds`; edits here are lost.\n"
    return head + yaml_text.dump(definition())


def definition() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{_PLURAL}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": _PLURAL,
                "singular": "nightjarservice",
                "shortNames": ["njs"],
                "categories": ["all"],
            },
            "versions": [
                {
                    "name": _VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [_column(*row) for row in _COLUMNS],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "schema": {"openAPIV3Schema": _document()},
                }
            ],
        },
    }


def _document() -> dict[str, Any]:
    name = {"type": "string", "pattern": names.SERVICE_PATTERN, "maxLength": names.SERVICE_LENGTH}
    return {
        "type": "object",
        "description": "A large language model served with speculative decoding that adapts to load.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": structural(NightjarServiceSpec),
            "status": structural(NightjarServiceStatus),
        },
    }


def _condition(of: str, what: str) -> str:
    return f'.status.conditions[?(@.type=="{of}")].{what}'


# Name, type, path, priority: those of priority 1 are shown with `-o wide`.
_COLUMNS = (
    ("Ready", "string", _condition("Ready", "status"), 0),
    ("Gamma", "string", ".status.speculation.gamma", 0),
    ("Draft on GPU", "string", ".status.speculation.draftsOnGpu", 0),
    ("Replicas", "integer", ".status.readyReplicas", 0),
    ("URL", "string", ".status.url", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Reason", "string", _condition("Ready", "reason"), 1),
    ("Adaptive", "string", _condition("Adaptive", "status"), 1),
    ("Policy", "string", ".spec.planner.policy", 1),
    ("Acceptance", "string", ".status.speculation.acceptancePercent", 1),
    ("Switch cost", "string", ".status.speculation.switchCost", 1),
    ("Tok/s", "integer", ".status.speculation.tokensPerSecond", 1),
    ("Settings", "string", ".status.settingsRevision", 1),
)


def _column(name: str, kind: str, path: str, priority: int) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}
