"""What an optional validating webhook adds to the definition's own rules.

Pure. Refusals are what no rule of the definition can say; everything that only looks wrong is a warning, which
kubectl prints and nobody is stopped by.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nightjar_api import service as documents
from nightjar_api.errors import ConfigurationError
from nightjar_api.model import cluster_problems, transition_problems
from nightjar_api.quantities import amount
from nightjar_api.service import NightjarService
from nightjar_api.sources import ModelSource
from nightjar_operator import notices

_GIB = 2**30
# The share of a GPU's memory that vLLM takes, unless it is told otherwise.
_USABLE = 0.9
_BYTES = {"float32": 4}
_PARAMETERS = re.compile(r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([BbMm])(?![A-Za-z0-9])")
_COMPRESSED = re.compile(r"awq|gptq|gguf|bnb|fp8|fp4|nf4|int[48]|w[48]a|[48]bit", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """An object with refusals is not admitted; each line names its field and what to do."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def review(new: Mapping[str, Any], old: Mapping[str, Any] | None, gpu_memory_bytes: int | None) -> Verdict:
    """Judge an object that is created (`old` None) or updated; memory of one GPU, None when it is not known."""
    try:
        service = documents.from_object(new)
    except ConfigurationError as error:
        return Verdict(refusals=tuple(str(error).splitlines()))
    refusals = cluster_problems(service.spec, "spec") + _changes(old, service)
    sizes = _sizes(service, gpu_memory_bytes) + _copy_of_draft(service)
    warnings = notices.without_planning(service) + _disruption(service) + sizes
    return Verdict(tuple(refusals), tuple(warnings))


def _changes(old: Mapping[str, Any] | None, service: NightjarService) -> list[str]:
    if old is None:
        return []
    try:
        before = documents.from_object(old)
    except ConfigurationError:
        # Written under older rules: whatever it becomes is an improvement.
        return []
    return transition_problems(before.spec, service.spec, "spec")


def _disruption(service: NightjarService) -> list[str]:
    budget, replicas = service.spec.disruption, service.spec.replicas
    if budget is None or service.spec.autoscaling is not None:
        return []
    if budget.max_unavailable == 0 or (budget.min_available or 0) >= max(replicas, 1):
        return [f"spec.disruption: no pod of {replicas} may ever be evicted, so a node that has one cannot be drained"]
    return []


def _sizes(service: NightjarService, gpu_memory_bytes: int | None) -> list[str]:
    """Whether the weights fit, as far as the models' names tell."""
    if gpu_memory_bytes is None or service.spec.engine.device == "cpu":
        return []
    draft = service.spec.draft
    sources = [service.spec.target.source] + ([draft.source] if draft is not None and draft.source is not None else [])
    parameters = [_parameters(source) for source in sources]
    known = [found for found in parameters if found is not None]
    shards = service.spec.engine.tensor_parallel_size
    weights = sum(known) * _BYTES.get(service.spec.target.dtype, 2) / shards
    if weights <= _USABLE * gpu_memory_bytes:
        return []
    planned = notices.why_unplanned(service) is None
    advice = "take smaller ones, or a service without a draft" if planned else "share them among more GPUs"
    needed, offered = round(weights / _GIB), round(_USABLE * gpu_memory_bytes / _GIB)
    sentence = (
        f"spec.engine.tensorParallelSize: by their names the models take about {needed} GiB on each of {shards} GPUs,"
        f" and one offers {offered} GiB; {advice}"
    )
    return [sentence]


def _copy_of_draft(service: NightjarService) -> list[str]:
    """Whether the engine's container has room for what elastic memory keeps on the host, as far as names tell."""
    spec = service.spec
    source = spec.draft.source if spec.draft is not None else None
    parameters = _parameters(source) if source is not None else None
    if not spec.memory.elastic or spec.engine.device == "cpu" or parameters is None:
        return []
    needed = int(parameters * _BYTES.get(spec.target.dtype, 2))
    given = {"limits": spec.engine.resources.limits, "requests": spec.engine.resources.requests}
    return [
        f"spec.engine.resources.{kind}.memory: by its name the draft takes {needed / _GIB:.3g} GiB of the host's memory"
        f" for a copy of its weights (memory.elastic), beside what the engine takes anyway, found {amounts['memory']};"
        f" raise it"
        for kind, amounts in given.items()
        if "memory" in amounts and amount(amounts["memory"]) < needed
    ]


def _parameters(source: ModelSource) -> float | None:
    """How many parameters the model's name promises: `Model-8x7B` has 56 billion; None when it does not say."""
    name = source.hub.id if source.hub is not None else source.path or source.uri or ""
    found = _PARAMETERS.findall(name.rstrip("/").rpartition("/")[2])
    if len(found) != 1 or _COMPRESSED.search(name):
        return None
    experts, number, unit = found[0]
    return int(experts or 1) * float(number) * (1e9 if unit in "Bb" else 1e6)
