"""The base of everything a person writes, and rules that hold between fields.

A rule is said once: its Python half refuses a document here, its CEL half goes into the custom resource
definition and refuses the same document at the API server.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


@dataclass(frozen=True)
class Rule:
    """A condition on a part of the document."""

    field: str
    """Whom to blame, as a path below the part: `planner.gammaMax`; empty for the part itself."""
    requires: str
    """What is required, as a sentence: `10ms to 1h is required`."""
    holds: Callable[[Any], bool]
    cel: str
    """The same condition for the API server; `self` is the part, with defaults filled in."""
    advice: str = ""
    found: Callable[[Any], object] | None = None
    """What is shown as found; the value of `field` if unset."""
    cluster_only: bool = False
    """Checked at the API server and before manifests are made; `nightjar local` has no need of it."""

    def broken_by(self, part: "Model") -> str | None:
        """What is wrong with `part`, path aside; None when the rule holds."""
        if self.holds(part):
            return None
        found = self.found(part) if self.found is not None else _value(part, self.field)
        advice = f"; {self.advice}" if self.advice else ""
        return f"{self.requires}, found {found!r}{advice}"


@dataclass(frozen=True)
class Transition:
    """A condition on a change: some fields cannot follow a document that is edited."""

    field: str
    requires: str
    holds: Callable[[Any, Any], bool]
    """Of the part before and the part after."""
    cel: str
    """The same; `oldSelf` is the part before."""
    advice: str


def _describe_rules(schema: dict[str, Any], part: type["Model"]) -> None:
    if part.rules or part.transitions:
        conditions: list[Rule | Transition] = [*part.rules, *part.transitions]
        schema["x-kubernetes-validations"] = [_validation(condition) for condition in conditions]


def _validation(rule: Rule | Transition) -> dict[str, str]:
    advice = f"; {rule.advice}" if rule.advice else ""
    path = {"fieldPath": f".{rule.field}"} if rule.field else {}
    return {"rule": rule.cel, "message": f"{rule.requires}{advice}", **path}


class Model(BaseModel):
    """Base of all parts: closed, immutable, camelCase in documents.

    Strict, so that no value is accepted here that the custom resource definition would refuse.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        json_schema_extra=_describe_rules,
    )

    rules: ClassVar[tuple[Rule, ...]] = ()
    transitions: ClassVar[tuple[Transition, ...]] = ()

    @model_validator(mode="after")
    def _rules_hold(self) -> Self:
        for rule in self.rules:
            problem = None if rule.cluster_only else rule.broken_by(self)
            if problem is not None:
                raise PydanticCustomError("rule", "{problem}", {"problem": problem, "field": rule.field})
        return self


def cluster_problems(part: Model, path: str) -> list[str]:
    """What a cluster refuses in `part` and everything below it, one line with its path each."""
    mine = [
        f"{path}.{rule.field}: {problem}"
        for rule in part.rules
        if rule.cluster_only and (problem := rule.broken_by(part)) is not None
    ]
    return mine + [problem for name, inner in _parts(part) for problem in cluster_problems(inner, f"{path}.{name}")]


def transition_problems(before: Model, after: Model, path: str) -> list[str]:
    """What of the change from `before` to `after` cannot be followed, one line with its path each."""
    mine = [
        f"{path}.{change.field}: {change.requires}, found {_value(after, change.field)!r}; {change.advice}"
        for change in after.transitions
        if not change.holds(before, after)
    ]
    old = dict(_parts(before))
    shared = [(name, old[name], inner) for name, inner in _parts(after) if name in old]
    return mine + [line for name, was, now in shared for line in transition_problems(was, now, f"{path}.{name}")]


def _parts(part: Model) -> list[tuple[str, Model]]:
    found = []
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        alias = field.alias or name
        if isinstance(value, Model):
            found.append((alias, value))
        elif isinstance(value, list):
            found += [(f"{alias}.{index}", item) for index, item in enumerate(value) if isinstance(item, Model)]
    return found


def _value(part: Model, field: str) -> object:
    value: Any = part.model_dump(mode="json", by_alias=True, exclude_none=True)
    for key in field.split(".") if field else ():
        value = value.get(key) if isinstance(value, dict) else None
    return value
