"""What `nightjar top` shows of a sidecar, read from its /status."""

from dataclasses import dataclass
from typing import Any

from nightjar_operator.reports import MalformedReportError

Json = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """One length in one bucket; seconds are per token of one request."""

    gamma: int
    believed_seconds: float | None
    visits: int
    measured_seconds: float | None
    margin_seconds: float | None


@dataclass(frozen=True)
class Bucket:
    """Decode batches that share one decision; `trying` is a probe's length."""

    low: int
    high: int
    gamma: int
    trying: int | None
    arms: tuple[Arm, ...]


@dataclass(frozen=True)
class Happened:
    """Something that happened, the last time so many seconds ago."""

    kind: str
    message: str
    count: int
    age_seconds: float


@dataclass(frozen=True)
class Reading:
    """One sidecar at one moment; None where it cannot know yet."""

    models: str
    policy: str
    revision: str
    trouble: str | None
    """Why it does not steer its engine, or refused settings."""
    gamma: int | None
    batch: int | None
    running: int | None
    waiting: int | None
    free_blocks: int | None
    total_blocks: int | None
    tokens_per_second: float
    steps_per_second: float
    acceptance: tuple[float, ...]
    switch_seconds: float
    regret: float | None
    """Share of decoding time, as the policy believes."""
    plan_version: int | None
    plan_age_seconds: float | None
    memory: tuple[int, int, int] | None
    """Bytes of the target's KV cache, of the draft's, of the draft's weights."""
    residency: str | None
    buckets: tuple[Bucket, ...]
    happened: tuple[Happened, ...]
    """The latest first."""


def reading(found: Any) -> Reading:
    """Read the JSON of /status; MalformedReportError when it is something else."""
    try:
        return _reading(found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise MalformedReportError(f"the JSON of a sidecar's /status is required: {error!r}") from error


def _reading(found: Json) -> Reading:
    steps, speculation, settings = found["steps"], found["speculation"], found["settings"]
    info, memory = found["engine"]["info"] or {}, found["memoryBytes"]
    refused = f"settings refused: {settings['error']}" if settings["error"] else None
    models = [info.get("targetModel"), info.get("draftModel")]
    return Reading(
        models=" + ".join(model for model in models if model),
        policy=settings["planner"]["policy"],
        revision=settings["revision"],
        trouble="; ".join(text for text in (found["reason"], refused) if text) or None,
        gamma=speculation["gamma"],
        batch=steps["batch"],
        running=steps["running"],
        waiting=steps["waiting"],
        free_blocks=steps["freeBlocks"],
        total_blocks=steps["totalBlocks"],
        tokens_per_second=float(steps["tokensPerSecond"]),
        steps_per_second=float(steps["perSecond"]),
        acceptance=tuple(float(rate) for rate in speculation["acceptance"]),
        switch_seconds=float(found["switchCost"]["seconds"]),
        regret=found["regret"]["share"],
        plan_version=found["plan"]["version"],
        plan_age_seconds=found["plan"]["ageSeconds"],
        memory=(memory["targetKv"], memory["draftKv"], memory["draftWeights"]) if memory else None,
        residency=_words(speculation["draftResidency"]),
        buckets=tuple(_bucket(one) for one in found["buckets"]),
        happened=tuple(
            Happened(one["kind"], one["message"], one["count"], one["ageSeconds"]) for one in found["events"]
        ),
    )


def _bucket(found: Json) -> Bucket:
    probes = (segment["gamma"] for segment in found["schedule"] if segment["gamma"] != found["gamma"])
    arms = (
        Arm(
            one["gamma"],
            one["believedSecondsPerToken"],
            one["visits"],
            one["measuredSecondsPerToken"],
            one["measuredMarginSeconds"],
        )
        for one in found["arms"]
    )
    return Bucket(found["minBatch"], found["maxBatch"], found["gamma"], next(probes, None), tuple(arms))


def _words(residency: str | None) -> str | None:
    return residency.removeprefix("DRAFT_RESIDENCY_").replace("_", " ").lower() if residency else None
