"""The kinds of objects that the operator reads and writes: one table for requests and watches."""

from dataclasses import dataclass

MANAGER = "nightjar-operator"
"""Field manager of everything the operator applies, and the value of the label `app.kubernetes.io/managed-by`."""
SERVICE_LABEL = "nightjar.dev/service"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
SELECTOR = f"{MANAGED_BY_LABEL}={MANAGER},{SERVICE_LABEL}"
"""What the operator watches of its children: nothing else of the cluster passes through it."""


@dataclass(frozen=True)
class Kind:
    """A resource type of the Kubernetes API."""

    group: str
    version: str
    name: str
    plural: str
    optional: bool = False
    """Its definition may be missing from the cluster."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


NIGHTJAR_SERVICE = Kind("nightjar.dev", "v1alpha1", "NightjarService", "nightjarservices")
DEPLOYMENT = Kind("apps", "v1", "Deployment", "deployments")
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE = Kind("", "v1", "Service", "services")
POD = Kind("", "v1", "Pod", "pods")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")
LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")

CHILDREN = (
    DEPLOYMENT,
    CONFIG_MAP,
    SERVICE,
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    Kind("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors", optional=True),
)
"""What the operator makes of a NightjarService; it owns them, and deletes those no longer wanted."""

_BY_NAME = {(kind.api_version, kind.name): kind for kind in (*CHILDREN, POD, NIGHTJAR_SERVICE)}


def kind_of(document: dict[str, object]) -> Kind:
    """The kind of a manifest; KeyError for one that the table lacks, which is a bug of the builders."""
    return _BY_NAME[str(document["apiVersion"]), str(document["kind"])]
