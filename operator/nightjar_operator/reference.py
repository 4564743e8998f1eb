"""The definition as a page for people: every field with its type, its default, its bounds and its meaning."""

import json
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_HEAD = """# Reference of NightjarService

Generated from the typed model by `make crds`; edits here are lost. `kubectl explain njs.spec` says the same at the
command line. What belongs together, and what a change of each part does, is told in [operator.md](operator.md).

`[]` are items of a list, `{}` values of a map. A field without a default may be left out unless it is marked as
required.
"""
# As in a PodSpec, and longer than all the rest together.
_FOLDED = {"affinity"}


def page(document: Schema) -> str:
    """`document` is the definition's schema of a whole object."""
    spec, status = document["properties"]["spec"], document["properties"]["status"]
    return "\n".join([_HEAD, *_section("spec", spec), *_section("status", status)])


def _section(name: str, schema: Schema) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{_meaning(schema)}\n"
    plain = {key: inner for key, inner in schema["properties"].items() if "properties" not in inner}
    yield from _table(name, {**schema, "properties": plain})
    for key, inner in schema["properties"].items():
        if "properties" in inner:
            yield f"### {name}.{key}\n"
            yield f"{_meaning(inner)}\n"
            yield from _table(f"{name}.{key}", inner)


def _table(path: str, schema: Schema) -> Iterator[str]:
    yield "| field | type | default | meaning |"
    yield "| --- | --- | --- | --- |"
    for row in _rows(path, schema):
        yield f"| {' | '.join(row)} |"
    yield ""


def _rows(path: str, schema: Schema) -> Iterator[tuple[str, str, str, str]]:
    for name, inner in schema.get("properties", {}).items():
        place, item = f"{path}.{name}", inner
        yield f"`{place}`", _type(inner), _default(inner, name in schema.get("required", [])), _meaning(inner)
        if name in _FOLDED:
            continue
        while "items" in item:
            place, item = f"{place}[]", item["items"]
        if isinstance(item.get("additionalProperties"), dict):
            place, item = f"{place}{{}}", item["additionalProperties"]
        yield from _rows(place, item)


def _default(schema: Schema, required: bool) -> str:  # noqa: FBT001 - a fact about the field
    if "default" in schema and "properties" not in schema:
        return f"`{json.dumps(schema['default'], ensure_ascii=False)}`"
    return "required" if required else ""


def _type(schema: Schema) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(f"`{found}`" for found in schema["enum"])
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_type(schema['additionalProperties'])}"
    kind = "integer or string" if schema.get("x-kubernetes-int-or-string") else str(schema["type"])
    return f"{kind}{_bounds(schema)}"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") != "integer" or low is None or high is None:
        return ""
    return f", {low} to {high}"


def _meaning(schema: Schema) -> str:
    return str(schema.get("description", "")).replace("|", "\\|")
