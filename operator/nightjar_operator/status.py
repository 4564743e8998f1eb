"""Facts about a service -> its status. Pure; the time is an argument."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from nightjar_api import status as api
from nightjar_api.status import NightjarServiceStatus, PodStatus
from nightjar_operator.conditions import Condition, merged
from nightjar_operator.diagnosis import Facts
from nightjar_operator.pods import Pod
from nightjar_operator.reports import Planning, Report
from nightjar_operator.summary import steadied, summary

Json = dict[str, Any]


@dataclass(frozen=True)
class Address:
    """Where the pods of a service are."""

    selector: str
    url: str


def read(found: Json) -> NightjarServiceStatus:
    """The status in force; empty when there is none, or when another version of the operator wrote it otherwise."""
    try:
        return NightjarServiceStatus.model_validate(found, by_alias=True, by_name=False)
    except ValidationError:
        return NightjarServiceStatus()


def status(
    facts: Facts,
    conditions: Iterable[Condition],
    address: Address | None,
    before: NightjarServiceStatus,
    moment: datetime,
    *,
    fresh: bool,
) -> NightjarServiceStatus:
    """The status, given the one in force.

    `fresh`: the figures may move; otherwise they stay as they are, so that a busy service is not written all the
    time. Without an address (the spec cannot be read) the one in force stays.
    """
    deployment = facts.deployment["status"] if facts.deployment is not None else {}
    known = {pod.name: pod for pod in before.pods}
    return NightjarServiceStatus(
        observed_generation=facts.generation,
        conditions=merged(before.conditions, conditions, facts.generation, moment),
        replicas=deployment.get("replicas", 0),
        ready_replicas=deployment.get("readyReplicas", 0),
        selector=address.selector if address is not None else before.selector,
        url=address.url if address is not None else before.url,
        settings_revision=facts.revision,
        pods=_pods(facts, None if fresh else known),
        speculation=steadied(before.speculation, _summary(facts)) if fresh else before.speculation,
    )


def dump(made: NightjarServiceStatus) -> Json:
    """As the API holds it; what is not known is left out."""
    return made.model_dump(mode="json", by_alias=True, exclude_none=True)


def _summary(facts: Facts) -> api.SpeculationStatus | None:
    found = (facts.reports.get(pod.uid) for pod in facts.serving)
    return summary([report for report in found if isinstance(report, Planning)])


def _pods(facts: Facts, frozen: Mapping[str, PodStatus] | None) -> list[PodStatus]:
    """`frozen`: by name, those whose figures stay as they are."""
    pods = sorted(facts.pods, key=lambda pod: pod.name)
    return [_pod(pod, facts.reports.get(pod.uid), frozen.get(pod.name) if frozen else None) for pod in pods]


def _pod(pod: Pod, report: Report | None, frozen: PodStatus | None) -> PodStatus:
    if not isinstance(report, Planning):
        return PodStatus(name=pod.name, ready=pod.ready)
    return PodStatus(
        name=pod.name,
        ready=pod.ready,
        settings_revision=report.revision,
        settings_error=report.refused,
        gamma=frozen.gamma if frozen is not None else report.gamma,
        draft_residency=frozen.draft_residency if frozen is not None else report.residency,
    )
