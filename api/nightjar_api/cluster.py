"""What only a cluster knows: storage, scaling, disruption, monitoring, networking, rollouts."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nightjar_api.model import Model, Rule, Transition
from nightjar_api.names import KEY_PATTERN, ObjectName, cel_keys
from nightjar_api.quantities import Quantity, amount
from nightjar_api.scheduling import Labels, are_keys

_NEW_CLAIM = "make a claim of your own, copy what matters, and name it with claimName"


def _are_both_made(before: "CacheSpec", after: "CacheSpec") -> bool:
    return before.size is not None and after.size is not None


class CacheSpec(Model):
    """Where downloaded models and compiled kernels outlive a pod: a claim of yours, or one that is made."""

    claim_name: ObjectName | None = Field(default=None, description="A claim that exists.")
    size: Quantity | None = Field(default=None, description="Of a claim that is made, and deleted with the service.")
    storage_class_name: ObjectName | None = Field(default=None, description="Of a claim that is made.")
    access_mode: Literal["ReadWriteOnce", "ReadWriteMany"] = Field(
        default="ReadWriteOnce", description="Of a claim that is made; several pods need ReadWriteMany."
    )

    rules: ClassVar = (
        Rule(
            field="",
            requires="exactly one of claimName and size is required",
            holds=lambda part: (part.claim_name is None) != (part.size is None),
            found=lambda part: [name for name, given in (("claimName", part.claim_name), ("size", part.size)) if given],
            cel="has(self.claimName) != has(self.size)",
        ),
        Rule(
            field="size",
            requires="more than nothing is required",
            holds=lambda part: part.size is None or amount(part.size) > 0,
            cel="!has(self.size) || quantity(string(self.size)).isGreaterThan(quantity('0'))",
        ),
        Rule(
            field="storageClassName",
            requires="no class for a claim that exists is required",
            holds=lambda part: part.storage_class_name is None or part.claim_name is None,
            cel="!has(self.storageClassName) || !has(self.claimName)",
        ),
    )

    # Kubernetes can make a claim larger, and change nothing else about it.
    transitions: ClassVar = (
        Transition(
            field="size",
            requires="at least the size before is required",
            advice=_NEW_CLAIM,
            holds=lambda before, after: (
                before.size is None or after.size is None or amount(after.size) >= amount(before.size)
            ),
            cel=(
                "!has(oldSelf.size) || !has(self.size)"
                " || quantity(string(self.size)).compareTo(quantity(string(oldSelf.size))) >= 0"
            ),
        ),
        Transition(
            field="storageClassName",
            requires="the class before is required",
            advice=_NEW_CLAIM,
            holds=lambda before, after: (
                not _are_both_made(before, after) or after.storage_class_name == before.storage_class_name
            ),
            cel=(
                "!has(oldSelf.size) || !has(self.size)"
                " || (has(self.storageClassName) ? self.storageClassName : '')"
                " == (has(oldSelf.storageClassName) ? oldSelf.storageClassName : '')"
            ),
        ),
        Transition(
            field="accessMode",
            requires="the mode before is required",
            advice=_NEW_CLAIM,
            holds=lambda before, after: not _are_both_made(before, after) or after.access_mode == before.access_mode,
            cel="!has(oldSelf.size) || !has(self.size) || self.accessMode == oldSelf.accessMode",
        ),
    )


class AutoscalingSpec(Model):
    """A HorizontalPodAutoscaler on a metric of the pods; it writes spec.replicas through the scale subresource."""

    min_replicas: int = Field(default=1, ge=1, le=1000)
    max_replicas: int = Field(ge=1, le=1000)
    metric: str = Field(
        default="nightjar_requests_waiting",
        pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$",
        max_length=128,
        description="Name under which the custom metrics API offers it for each pod.",
    )
    target: int = Field(default=2, ge=1, le=1_000_000, description="Average per pod that is aimed at.")

    rules: ClassVar = (
        Rule(
            field="maxReplicas",
            requires="at least minReplicas is required",
            holds=lambda part: part.max_replicas >= part.min_replicas,
            cel="self.maxReplicas >= self.minReplicas",
        ),
    )


class DisruptionSpec(Model):
    """A PodDisruptionBudget: how many pods a drain may take at a time."""

    min_available: int | None = Field(default=None, ge=0, le=1000)
    max_unavailable: int | None = Field(default=None, ge=0, le=1000)

    rules: ClassVar = (
        Rule(
            field="",
            requires="exactly one of minAvailable and maxUnavailable is required",
            holds=lambda part: (part.min_available is None) != (part.max_unavailable is None),
            cel="has(self.minAvailable) != has(self.maxUnavailable)",
        ),
    )


class MonitoringSpec(Model):
    """A PodMonitor of the Prometheus operator, for the metrics of engine and sidecar."""

    interval: str = Field(default="15s", pattern=r"^[1-9][0-9]{0,3}s$", description="Between scrapes.")
    labels: Labels = Field(default={}, description="Of the PodMonitor, where your Prometheus selects by label.")

    rules: ClassVar = (
        Rule(
            field="labels",
            requires="keys of labels are required",
            holds=lambda part: are_keys(part.labels),
            cel=cel_keys("self.labels", KEY_PATTERN),
        ),
    )


class ServiceSpec(Model):
    """The Service through which the OpenAI API is reached."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    port: int = Field(default=80, ge=1, le=65535)
    annotations: dict[str, Annotated[str, Field(max_length=1024)]] = Field(default={}, max_length=32)

    rules: ClassVar = (
        Rule(
            field="annotations",
            requires="keys of annotations are required",
            holds=lambda part: are_keys(part.annotations),
            cel=cel_keys("self.annotations", KEY_PATTERN),
        ),
    )


class RolloutSpec(Model):
    """How pods are replaced."""

    max_surge: int = Field(default=0, ge=0, le=1000, description="Pods above spec.replicas meanwhile; each takes GPUs.")
    max_unavailable: int = Field(default=1, ge=0, le=1000, description="Pods that may be missing meanwhile.")

    rules: ClassVar = (
        Rule(
            field="maxUnavailable",
            requires="at least 1 where maxSurge is 0 is required",
            holds=lambda part: part.max_surge > 0 or part.max_unavailable > 0,
            cel="self.maxSurge > 0 || self.maxUnavailable > 0",
        ),
    )


class PullSecret(Model):
    """A Secret that holds credentials of an image registry."""

    name: ObjectName
