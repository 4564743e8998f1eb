"""What a pod's sidecar says of itself and its engine, read from its /status."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


class MalformedReportError(ValueError):
    """An answer that is not the sidecar's /status; the message says what is required and what was found."""


@dataclass(frozen=True)
class Silence:
    """A sidecar that did not answer."""

    why: str


@dataclass(frozen=True)
class Bucket:
    """Decode batches that share one decision, and the length held for them."""

    low: int
    high: int
    gamma: int


@dataclass(frozen=True)
class Planning:
    """The planner's state in one pod."""

    revision: str
    """Names the settings it obeys."""
    refused: str | None
    """What is wrong with newer settings that it does not obey."""
    unready: str | None
    """Why it does not plan; None while it does."""
    gamma: int | None
    """The length planned for the batch it runs; None before there is a plan, or a batch."""
    buckets: tuple[Bucket, ...]
    """Growing."""
    acceptance: tuple[float, ...]
    """Share of accepted drafts by draft position."""
    switch_seconds: float | None
    """What a return from no speculation would cost now."""
    residency: str | None
    """Where the draft's weights are: `OnDevice`, …; None before the engine reported."""
    tokens_per_second: float | None


Report = Planning | Silence


def planning(found: Any) -> Planning:
    """Read the JSON of /status; MalformedReportError when it lacks what is needed."""
    try:
        return _planning(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedReportError(f"the JSON of a sidecar's /status is required: {error!r}") from error


def _planning(found: Json) -> Planning:
    speculation, steps = found["speculation"], found["steps"]
    buckets = tuple(Bucket(one["minBatch"], one["maxBatch"], one["gamma"]) for one in found["buckets"])
    return Planning(
        revision=str(found["settings"]["revision"]),
        refused=found["settings"]["error"],
        unready=found["reason"],
        gamma=_planned_for(steps["running"], buckets),
        buckets=buckets,
        acceptance=tuple(float(rate) for rate in speculation["acceptance"]),
        switch_seconds=found["switchCost"]["seconds"],
        residency=_camel(speculation["draftResidency"]),
        tokens_per_second=steps.get("tokensPerSecond"),
    )


def _planned_for(batch: int | None, buckets: tuple[Bucket, ...]) -> int | None:
    """The plan's length rather than the latest step's: probes would make it flicker."""
    if batch is None:
        return None
    return next((bucket.gamma for bucket in buckets if bucket.low <= max(batch, 1) <= bucket.high), None)


def _camel(residency: str | None) -> str | None:
    if residency is None:
        return None
    return "".join(word.capitalize() for word in residency.removeprefix("DRAFT_RESIDENCY_").split("_"))
