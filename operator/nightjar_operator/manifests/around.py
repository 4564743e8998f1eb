"""What stands around the Deployment; each object only when the spec asks for it."""

from nightjar_api import settings
from nightjar_api.service import API_VERSION, KIND, NightjarService
from nightjar_operator import pod
from nightjar_operator.manifests import places
from nightjar_operator.manifests.identity import Manifest, Owner, owned, selector


def claim(service: NightjarService, owner: Owner) -> Manifest | None:
    """The model cache, unless the spec names a claim that exists."""
    cache = service.spec.cache
    if cache is None or cache.size is None:
        return None
    content: Manifest = {
        "accessModes": [cache.access_mode],
        "resources": {"requests": {"storage": str(cache.size)}},
    }
    if cache.storage_class_name is not None:
        content["storageClassName"] = cache.storage_class_name
    return owned(owner, "v1", "PersistentVolumeClaim", places.claim_name(owner.name), "cache", spec=content)


def settings_map(built: pod.Pod, owner: Owner) -> Manifest | None:
    """The sidecar's settings file; a change reaches running pods and restarts nothing."""
    if built.settings is None:
        return None
    data = {places.SETTINGS_FILE: settings.dump(built.settings)}
    return owned(owner, "v1", "ConfigMap", places.settings_name(owner.name), "sidecar", data=data)


def service(service: NightjarService, owner: Owner) -> Manifest:
    given = service.spec.service
    content = {
        "type": given.type,
        "selector": selector(owner),
        "ports": [{"name": "openai", "port": given.port, "targetPort": "openai"}],
    }
    found = owned(owner, "v1", "Service", owner.name, "engine", spec=content)
    if given.annotations:
        found["metadata"]["annotations"] = dict(given.annotations)
    return found


def autoscaler(service: NightjarService, owner: Owner) -> Manifest | None:
    """Scales the NightjarService, not its Deployment: then each of the two has one writer of its replicas."""
    given = service.spec.autoscaling
    if given is None:
        return None
    metric = {"metric": {"name": given.metric}, "target": {"type": "AverageValue", "averageValue": str(given.target)}}
    content = {
        "scaleTargetRef": {"apiVersion": API_VERSION, "kind": KIND, "name": owner.name},
        "minReplicas": given.min_replicas,
        "maxReplicas": given.max_replicas,
        "metrics": [{"type": "Pods", "pods": metric}],
    }
    return owned(owner, "autoscaling/v2", "HorizontalPodAutoscaler", owner.name, "autoscaling", spec=content)


def disruption_budget(service: NightjarService, owner: Owner) -> Manifest | None:
    given = service.spec.disruption
    if given is None:
        return None
    content = {
        **given.model_dump(mode="json", by_alias=True, exclude_none=True),
        "selector": {"matchLabels": selector(owner)},
        # A pod that is not Ready protects nobody; it must not keep a node from being drained.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return owned(owner, "policy/v1", "PodDisruptionBudget", owner.name, "engine", spec=content)


def pod_monitor(service: NightjarService, owner: Owner, built: pod.Pod) -> Manifest | None:
    given = service.spec.monitoring
    if given is None:
        return None
    ports = ["openai", "status"] if built.sidecar is not None else ["openai"]
    content = {
        "selector": {"matchLabels": selector(owner)},
        "podMetricsEndpoints": [{"port": port, "path": "/metrics", "interval": given.interval} for port in ports],
    }
    found = owned(owner, "monitoring.coreos.com/v1", "PodMonitor", owner.name, "monitoring", spec=content)
    # Ours last: the operator finds its objects by them.
    found["metadata"]["labels"] = {**given.labels, **found["metadata"]["labels"]}
    return found
