"""What the operator says about a NightjarService; part of the custom resource definition.

Shares and rates are whole numbers: a status that follows every digit would be written all the time.
"""

from typing import Literal

from pydantic import Field

from nightjar_api.model import Model


class Condition(Model):
    """One thing that holds, does not, or is not known, in Kubernetes' conventional form."""

    type: str = Field(
        description="Accepted, Ready, RolledOut, Adaptive, SettingsSynced, InsufficientGPU, ModelUnavailable.",
        max_length=64,
    )
    status: Literal["True", "False", "Unknown"]
    reason: str = Field(max_length=128, description="One word for programs.")
    message: str = Field(max_length=4096, description="A sentence for people, with what to do.")
    last_transition_time: str = Field(description="When the status changed.", json_schema_extra={"format": "date-time"})
    observed_generation: int = Field(ge=0, description="The generation of the spec this is about.")


class PodStatus(Model):
    """One pod."""

    name: str
    ready: bool = Field(description="Whether it serves requests.")
    settings_revision: str | None = Field(default=None, description="The settings its sidecar obeys.")
    settings_error: str | None = Field(default=None, description="Why its sidecar refused newer ones.")
    gamma: int | None = Field(default=None, description="Speculative length planned for the batch it runs.")
    draft_residency: str | None = Field(default=None, description="Where its draft's weights are.")


class BucketStatus(Model):
    """What is planned for some sizes of the decode batch."""

    min_batch: int
    max_batch: int
    gamma: str = Field(description="Speculative length; a range such as 1-3 where pods differ.")


class SpeculationStatus(Model):
    """A summary of all sidecars."""

    gamma: str | None = Field(default=None, description="Planned for the batches that run; a range where pods differ.")
    buckets: list[BucketStatus] = Field(default=[], max_length=64, description="Planned lengths by decode batch.")
    acceptance_percent: list[int] = Field(
        default=[], max_length=16, description="Share of drafts accepted, by position."
    )
    switch_cost: str | None = Field(default=None, description="Of a return from no speculation, as a duration.")
    drafts_on_gpu: str | None = Field(default=None, description="Pods whose draft is on the GPU: 2/2.")
    tokens_per_second: int | None = Field(default=None, description="Output of all pods.")


class NightjarServiceStatus(Model):
    """What is the case."""

    observed_generation: int | None = Field(
        default=None, ge=0, description="The generation of the spec that was last acted on."
    )
    conditions: list[Condition] = Field(
        default=[],
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    replicas: int | None = Field(default=None, ge=0, description="Pods there are.")
    ready_replicas: int | None = Field(default=None, ge=0, description="Pods that serve.")
    selector: str | None = Field(default=None, description="Of the pods; read by autoscalers.")
    url: str | None = Field(default=None, description="The OpenAI API within the cluster.")
    settings_revision: str | None = Field(default=None, description="The settings that pods should obey.")
    pods: list[PodStatus] = Field(
        default=[],
        max_length=1000,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    speculation: SpeculationStatus | None = None
