"""The values of the fields of an object that the operator owns, by the API server's own bookkeeping.

`metadata.managedFields` says which fields each manager applied. Reading the object through our entry gives what
of it is ours, with the server's defaults and normal forms (`1000m` is `1`), whatever others added beside it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from nightjar_operator.kinds import MANAGER

Json = dict[str, Any]


def fingerprint(live: Json) -> str:
    """Changes when a field that we applied changes its value or its owner, and at nothing else."""
    fields = _applied_fields(live)
    owned = {"fields": fields, "values": _values(fields, live)}
    return hashlib.sha256(json.dumps(owned, sort_keys=True).encode()).hexdigest()


def _applied_fields(live: Json) -> Json:
    for entry in live["metadata"].get("managedFields", []):
        if entry["manager"] == MANAGER and entry["operation"] == "Apply" and not entry.get("subresource"):
            fields: Json = entry["fieldsV1"]
            return fields
    return {}


def _values(fields: Mapping[str, Any], live: Any) -> Any:
    # An empty set stands for the whole value below.
    below = {key: inner for key, inner in fields.items() if key != "."}
    if not below:
        return live if not fields else None
    return {key: _values(inner, _child(key, live)) for key, inner in below.items()}


def _child(key: str, live: Any) -> Any:
    """Follow one element of a field path: a field, an item by its key, an item by its value, or by its place."""
    how, _, what = key.partition(":")
    match how:
        case "f":
            return live.get(what) if isinstance(live, dict) else None
        case "k":
            wanted = json.loads(what)
            items = live if isinstance(live, list) else []
            return next((item for item in items if wanted.items() <= item.items()), None)
        case "v":
            value = json.loads(what)
            return value if isinstance(live, list) and value in live else None
        case "i":
            return live[int(what)] if isinstance(live, list) and int(what) < len(live) else None
        case _:
            raise ValueError(f"managedFields: f:, k:, v: or i: is required, found {key!r}")
