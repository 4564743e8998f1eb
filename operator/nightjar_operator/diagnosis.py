"""Facts about a service -> its conditions. Every condition is answered in every situation."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nightjar_operator.conditions import Condition
from nightjar_operator.pods import Pod, Trouble
from nightjar_operator.reports import Planning, Report, Silence

Json = dict[str, Any]

_PINNED = ("off", "fixed")
_GPU_LACKING = re.compile(r"Insufficient [\w./-]*gpu[\w./-]*", re.IGNORECASE)
# A library or a program that is missing is the image's fault.
_FILE_LACKING = (
    r"(?<!shared object file: )No such file or directory"
    r"(?!: ['\"](?:[^'\"/.]+|[^'\"]*/bin/[^'\"]*|[^'\"]*\.so[.\d]*)['\"])"
)
# What the engine's loader and the hub's client say of a model they cannot get, and the kubelet of a volume or a
# secret that is not there.
_MODEL_LACKING = re.compile(
    r"RepositoryNotFound|RevisionNotFound|EntryNotFound|GatedRepo|HFValidationError"
    r"|not a valid model identifier|Invalid repository ID|does not appear to have a file named"
    r"|Can't load the (?:configuration|tokenizer)|(?:401|403) Client Error"
    r"|persistentvolumeclaim|PersistentVolumeClaims|secret \"[^\"]*\" not found"
    rf"|{_FILE_LACKING}",
)


@dataclass(frozen=True)
class Problem:
    """Why the newest spec could not be turned into objects in the cluster."""

    reason: str
    message: str


@dataclass(frozen=True)
class Facts:
    """All that a status says is computed from this."""

    generation: int
    problem: Problem | None = None
    policy: str | None = None
    """The planner's; None when there is nothing to plan, or the spec cannot be read."""
    unplanned: str | None = None
    """Why there is nothing to plan."""
    revision: str | None = None
    """Names the settings that every sidecar should obey; None without sidecars."""
    deployment: Json | None = None
    """Generation, replicas and status; None before it exists."""
    pods: tuple[Pod, ...] = ()
    """Those that are to stay."""
    reports: Mapping[str, Report] = field(default_factory=dict)
    """By the pod's uid."""

    @property
    def serving(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods if pod.ready)


def conditions(facts: Facts) -> list[Condition]:
    return [
        _accepted(facts),
        _ready(facts),
        _rolled_out(facts),
        _adaptive(facts),
        _settings_synced(facts),
        _insufficient_gpu(facts),
        _model_unavailable(facts),
    ]


def _accepted(facts: Facts) -> Condition:
    if facts.problem is not None:
        return Condition("Accepted", "False", facts.problem.reason, facts.problem.message)
    return Condition("Accepted", "True", "Applied", "the cluster holds every object the spec asks for")


def _ready(facts: Facts) -> Condition:
    """Serving now, whatever a rollout is doing."""
    serving, wanted = len(facts.serving), _wanted(facts)
    if serving:
        return Condition("Ready", "True", "Serving", f"{serving} of {max(wanted, len(facts.pods))} pods serve")
    if facts.deployment is not None and wanted == 0:
        return Condition("Ready", "False", "ScaledToZero", "no pods are wanted; raise spec.replicas to serve")
    for pod in facts.pods:
        if pod.unschedulable is not None:
            return Condition("Ready", "False", "Unschedulable", f"no node takes pod {pod.name}: {pod.unschedulable}")
    for pod, trouble in _troubles(facts):
        message = f"pod {pod.name}, container {trouble.container}: {trouble.message or trouble.reason}"
        return Condition("Ready", "False", trouble.reason, message)
    if facts.pods:
        return Condition("Ready", "False", "Starting", f"{len(facts.pods)} pods start, none serves yet")
    return Condition("Ready", "False", "NoPod", "there are no pods yet")


def _rolled_out(facts: Facts) -> Condition:
    """Every pod runs the newest spec."""
    if facts.problem is not None:
        return Condition("RolledOut", "False", facts.problem.reason, "the newest spec is not in the cluster")
    if facts.deployment is None:
        return Condition("RolledOut", "False", "Creating", "the Deployment does not exist yet")
    status, wanted = facts.deployment["status"], _wanted(facts)
    updated, ready = status.get("updatedReplicas", 0), status.get("readyReplicas", 0)
    total = status.get("replicas", 0)
    if status.get("observedGeneration", 0) < facts.deployment["generation"]:
        return Condition("RolledOut", "False", "RollingOut", "the newest pod template has not been looked at yet")
    if updated == wanted == total and ready >= wanted:
        return Condition("RolledOut", "True", "Complete", f"{wanted} of {wanted} pods run the newest spec")
    message = f"{updated} of {wanted} pods run the newest spec, {total - updated} an older one, {ready} are ready"
    progressing: Json = next((one for one in status.get("conditions", []) if one["type"] == "Progressing"), {})
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return Condition("RolledOut", "False", "Stalled", f"{message}; no progress within the Deployment's deadline")
    return Condition("RolledOut", "False", "RollingOut", message)


def _adaptive(facts: Facts) -> Condition:
    """The planner is in control in every pod that serves, or why not."""
    if facts.problem is not None and facts.policy is None:
        return Condition("Adaptive", "Unknown", facts.problem.reason, "the spec cannot be read")
    if facts.policy is None:
        return Condition("Adaptive", "False", "NothingToPlan", facts.unplanned or "")
    if facts.policy in _PINNED:
        message = f"spec.planner.policy is {facts.policy!r}, which does not adapt"
        return Condition("Adaptive", "False", "LengthPinned", message)
    return _planned(facts)


def _planned(facts: Facts) -> Condition:
    if not facts.serving:
        return Condition("Adaptive", "False", "NoPod", "no pod serves")
    waiting = False
    for pod in facts.serving:
        report = facts.reports.get(pod.uid)
        if isinstance(report, Silence):
            message = f"pod {pod.name} serves, its sidecar does not answer: {report.why}"
            return Condition("Adaptive", "False", "SidecarSilent", message)
        if report is not None and report.unready is not None:
            message = f"pod {pod.name} is not planned for: {report.unready}"
            return Condition("Adaptive", "False", "NotPlanning", message)
        waiting = waiting or report is None
    if waiting:
        return Condition("Adaptive", "Unknown", "NotAskedYet", "the sidecars have not been asked yet")
    return Condition("Adaptive", "True", "Planning", f"the planner chooses γ in {len(facts.serving)} pods")


def _settings_synced(facts: Facts) -> Condition:
    """Every pod that serves obeys the newest planner and memory settings."""
    if facts.revision is None:
        if facts.problem is not None:
            return Condition("SettingsSynced", "Unknown", facts.problem.reason, "the spec cannot be read")
        return Condition("SettingsSynced", "True", "NothingToPlan", facts.unplanned or "")
    if not facts.serving:
        return Condition("SettingsSynced", "Unknown", "NoPod", "no pod serves")
    behind = []
    for pod in facts.serving:
        report = facts.reports.get(pod.uid)
        if isinstance(report, Planning) and report.refused is not None:
            message = f"pod {pod.name} keeps its older settings: {report.refused}"
            return Condition("SettingsSynced", "False", "Refused", message)
        if not isinstance(report, Planning) or report.revision != facts.revision:
            behind.append(pod.name)
    if behind:
        message = f"{len(behind)} of {len(facts.serving)} pods do not obey {facts.revision} yet, {behind[0]} among them"
        return Condition("SettingsSynced", "False", "Propagating", message)
    message = f"{len(facts.serving)} of {len(facts.serving)} pods obey {facts.revision}"
    return Condition("SettingsSynced", "True", "Synced", message)


def _insufficient_gpu(facts: Facts) -> Condition:
    for pod in facts.pods:
        if pod.unschedulable is not None and _GPU_LACKING.search(pod.unschedulable):
            message = (
                f"no node has the GPUs that pod {pod.name} asks for: {pod.unschedulable};"
                f" free some, add nodes, or lower spec.replicas or spec.engine.tensorParallelSize"
            )
            return Condition("InsufficientGPU", "True", "Unschedulable", message)
    return Condition("InsufficientGPU", "False", "NonePending", "no pod waits for a GPU")


def _model_unavailable(facts: Facts) -> Condition:
    for pod, trouble in _troubles(facts):
        # The sidecar loads no model, though its last words may be of files that are not there.
        if trouble.container == "engine" and _MODEL_LACKING.search(trouble.message):
            return _unavailable(f"pod {pod.name}, container {trouble.container}: {trouble.message}")
    for pod in facts.pods:
        if pod.unschedulable is not None and _MODEL_LACKING.search(pod.unschedulable):
            return _unavailable(f"pod {pod.name}: {pod.unschedulable}")
    return Condition("ModelUnavailable", "False", "NoneLacking", "no pod failed to get its models")


def _unavailable(what: str) -> Condition:
    message = f"{what}; check the source of spec.target and spec.draft, and the secret with its token"
    return Condition("ModelUnavailable", "True", "NotLoaded", message)


def _wanted(facts: Facts) -> int:
    return int(facts.deployment["replicas"]) if facts.deployment is not None else 0


def _troubles(facts: Facts) -> Iterator[tuple[Pod, Trouble]]:
    return ((pod, trouble) for pod in facts.pods for trouble in pod.troubles)
