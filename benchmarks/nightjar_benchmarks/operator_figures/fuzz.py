"""Documents are refused at admission with a path, or become manifests that the API server accepts."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from nightjar_api import service as documents
from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.operator_figures.api import DryRun
from nightjar_operator.manifests import Images, Owner, manifests

_IMAGES = Images("example.com/nightjar-engine:1", "example.com/nightjar-sidecar:1")
_UID = "7d2f6c1e-0000-4000-8000-000000000000"
# `spec.engine.port`, `spec` itself, or `metadata.name`, which the server calls ObjectMeta.name where it is no text.
_PATH = re.compile(r"\b(spec|metadata|ObjectMeta)\b")


@dataclass
class Outcome:
    """What became of the documents; `failures` say why, with the document."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)


def judge(api: DryRun, found: Iterable[dict[str, Any]]) -> Outcome:
    outcome = Outcome()
    for document in found:
        verdict, why = _verdict(api, document)
        outcome.counts[verdict] += 1
        if verdict == "failed":
            outcome.failures.append({"why": why, "document": document})
    return outcome


def _verdict(api: DryRun, document: dict[str, Any]) -> tuple[str, str]:
    answer = api.create(document)
    refusal = _refused_here(document if answer.found is None else answer.found)
    if answer.found is None:
        if _PATH.search(answer.refusal) is None:
            return "failed", f"refused without a path: {answer.refusal}"
        if refusal is None:
            return "failed", f"refused by the API server only: {answer.refusal}"
        return "refused", ""
    if refusal is not None:
        return "failed", f"accepted by the API server, refused here: {refusal}"
    for manifest in _manifests(answer.found):
        applied = api.apply(manifest)
        if applied.found is None:
            return "failed", f"{manifest['kind']}: {applied.refusal}"
    return "accepted", ""


def _refused_here(document: dict[str, Any]) -> str | None:
    try:
        _manifests(document)
    except ConfigurationError as error:
        return str(error)
    return None


def _manifests(document: dict[str, Any]) -> list[dict[str, Any]]:
    service = documents.from_object(document)
    return manifests(service, Owner("default", service.metadata.name, _UID), _IMAGES)
