"""A typed model as a structural schema: what a custom resource definition may say.

Pydantic's JSON schema is closed, has references and nulls; a structural schema has neither, and the API server
refuses unknown fields by itself.
"""

from typing import Any

from nightjar_api.model import Model

Schema = dict[str, Any]

_DROPPED = {"title", "additionalProperties", "$defs"}


def structural(model: type[Model]) -> Schema:
    """The schema of `model`'s documents, references resolved, defaults filled in."""
    found = model.model_json_schema(by_alias=True)
    return _part(found, found.get("$defs", {}))


def _part(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    schema = _resolved(schema, definitions)
    found = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if "description" in found:
        found["description"] = " ".join(found["description"].split())
    if "items" in found:
        found["items"] = _part(found["items"], definitions)
    if isinstance(schema.get("additionalProperties"), dict):
        found["additionalProperties"] = _part(schema["additionalProperties"], definitions)
    if "properties" in found:
        found["properties"] = {name: _part(inner, definitions) for name, inner in found["properties"].items()}
    if "default" in found:
        found["default"] = _without_nulls(found["default"])
    return found


def _resolved(schema: Schema, definitions: dict[str, Schema]) -> Schema:
    """Without `$ref`, and without the null of an optional field: leaving it out says the same."""
    if "$ref" in schema:
        named = definitions[schema["$ref"].rpartition("/")[2]]
        return _resolved({**named, **{key: value for key, value in schema.items() if key != "$ref"}}, definitions)
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1 and len(schema["anyOf"]) == 2:
        rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
        return _resolved({**options[0], **rest}, definitions)
    return schema


def _without_nulls(value: Any) -> Any:
    # Rules see a default before the defaults below it are filled in, so it must be complete.
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
