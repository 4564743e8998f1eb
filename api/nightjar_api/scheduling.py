"""Where pods may run. Field names are those of Kubernetes' PodSpec, so that parts of one can be pasted here.

These parts are typed rather than passed through: what is misspelt in an affinity is refused with its path, instead
of never being scheduled. The rarely used rest of the core types (matchFields, namespaceSelector) is left out; the
whole PodSpec would make the definition many times as large.
"""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nightjar_api.model import Model, Rule
from nightjar_api.names import KEY_PATTERN, Key, LabelValue, Namespace, ObjectName, cel_keys

Labels = Annotated[dict[str, LabelValue], Field(max_length=32)]
Weight = Annotated[int, Field(ge=1, le=100)]
_INTEGER = r"^[0-9]{1,18}$"


def are_keys(found: dict[str, str]) -> bool:
    return all(len(key) <= 317 and re.fullmatch(KEY_PATTERN, key) is not None for key in found)


_VALUES_FIT = Rule(
    field="values",
    requires="some values for In and NotIn, none for Exists and DoesNotExist, one integer for Gt and Lt, are required",
    holds=lambda part: (
        len(part.values) == 1 and re.fullmatch(_INTEGER, part.values[0]) is not None
        if part.operator in ("Gt", "Lt")
        else (part.values != []) == (part.operator in ("In", "NotIn"))
    ),
    cel=(
        "self.operator in ['Gt', 'Lt'] ? self.values.size() == 1 && self.values[0].matches('^[0-9]{1,18}$')"
        " : (self.values.size() > 0) == (self.operator in ['In', 'NotIn'])"
    ),
)


class NodeRequirement(Model):
    """A condition on a node's label."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[LabelValue] = Field(default=[], max_length=32)

    rules: ClassVar = (_VALUES_FIT,)


class NodeTerm(Model):
    """Conditions that hold together."""

    match_expressions: Annotated[list[NodeRequirement], Field(min_length=1, max_length=16)]


class NodeTerms(Model):
    """Terms of which one must hold."""

    node_selector_terms: Annotated[list[NodeTerm], Field(min_length=1, max_length=8)]


class PreferredNodeTerm(Model):
    """A term that is worth something."""

    weight: Weight
    preference: NodeTerm


class NodeAffinity(Model):
    """Which nodes."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredNodeTerm] = Field(default=[], max_length=8)


class LabelRequirement(Model):
    """A condition on a pod's label."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: list[LabelValue] = Field(default=[], max_length=32)

    rules: ClassVar = (_VALUES_FIT,)


class LabelSelector(Model):
    """Which pods, by label."""

    match_labels: Labels = Field(default={})
    match_expressions: list[LabelRequirement] = Field(default=[], max_length=16)

    rules: ClassVar = (
        Rule(
            field="matchLabels",
            requires="keys of labels are required",
            holds=lambda part: are_keys(part.match_labels),
            cel=cel_keys("self.matchLabels", KEY_PATTERN),
        ),
    )


class PodTerm(Model):
    """Near which pods."""

    label_selector: LabelSelector
    topology_key: Key
    namespaces: list[Namespace] = Field(default=[], max_length=16)


class PreferredPodTerm(Model):
    """A term that is worth something."""

    weight: Weight
    pod_affinity_term: PodTerm


class PodAffinity(Model):
    """Near which pods, or far from them."""

    required_during_scheduling_ignored_during_execution: list[PodTerm] = Field(default=[], max_length=8)
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] = Field(default=[], max_length=8)


class Affinity(Model):
    """Attraction and repulsion."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Model):
    """A taint that does not keep the pods away."""

    key: Key | None = None
    operator: Literal["Exists", "Equal"] = "Equal"
    value: LabelValue = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    toleration_seconds: int | None = Field(default=None, ge=0, le=86_400 * 365)

    rules: ClassVar = (
        Rule(
            field="value",
            requires="no value beside the operator Exists is required",
            holds=lambda part: part.operator == "Equal" or part.value == "",
            cel="self.operator == 'Equal' || self.value == ''",
        ),
        Rule(
            field="operator",
            requires="Exists, where no key is named, is required",
            holds=lambda part: part.key is not None or part.operator == "Exists",
            cel="has(self.key) || self.operator == 'Exists'",
        ),
        Rule(
            field="tolerationSeconds",
            requires="the effect NoExecute beside tolerationSeconds is required",
            holds=lambda part: part.toleration_seconds is None or part.effect == "NoExecute",
            cel="!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
        ),
    )


class SpreadConstraint(Model):
    """How evenly the service's own pods are spread."""

    max_skew: int = Field(default=1, ge=1, le=1000)
    topology_key: Key
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"] = "ScheduleAnyway"


class SchedulingSpec(Model):
    """Where pods may run, as in a PodSpec."""

    node_selector: Labels = Field(default={}, description="Labels that a node must have.")
    tolerations: list[Toleration] = Field(default=[], max_length=32, description="Taints that do not keep pods away.")
    affinity: Affinity | None = Field(default=None, description="Attraction to and repulsion from nodes and pods.")
    topology_spread_constraints: list[SpreadConstraint] = Field(
        default=[], max_length=8, description="How evenly the service's pods are spread; the selector is filled in."
    )
    runtime_class_name: ObjectName | None = Field(default=None, description="A RuntimeClass: `nvidia`, for example.")
    priority_class_name: ObjectName | None = Field(default=None, description="A PriorityClass.")

    rules: ClassVar = (
        Rule(
            field="nodeSelector",
            requires="keys of labels are required",
            holds=lambda part: are_keys(part.node_selector),
            cel=cel_keys("self.nodeSelector", KEY_PATTERN),
        ),
        Rule(
            field="topologySpreadConstraints",
            requires="one constraint for each topologyKey and whenUnsatisfiable is required",
            holds=lambda part: (
                len({(spread.topology_key, spread.when_unsatisfiable) for spread in part.topology_spread_constraints})
                == len(part.topology_spread_constraints)
            ),
            cel=(
                "self.topologySpreadConstraints.all(one, self.topologySpreadConstraints.exists_one(other,"
                " one.topologyKey == other.topologyKey && one.whenUnsatisfiable == other.whenUnsatisfiable))"
            ),
        ),
    )
