"""The Deployment: how many pods, how they are replaced, and the template of one."""

import math

from nightjar_api import durations
from nightjar_api.service import NightjarService
from nightjar_operator import pod
from nightjar_operator.manifests.containers import PRE_STOP_SECONDS, engine, sidecar
from nightjar_operator.manifests.identity import Images, Manifest, Owner, labels, owned, selector
from nightjar_operator.manifests.volumes import volumes

# For vLLM to end once its requests are through, and for the sidecar after it.
_EXIT_SECONDS = 15
# For scheduling and pulling images, before loading begins.
_PLACEMENT_SECONDS = 600


def deployment(service: NightjarService, owner: Owner, images: Images, built: pod.Pod) -> Manifest:
    spec = service.spec
    startup = math.ceil(durations.seconds(spec.engine.startup_timeout))
    content = {
        "replicas": spec.replicas,
        "selector": {"matchLabels": selector(owner)},
        # By default an old pod goes before a new one comes. The usual surge would ask for GPUs that a full
        # cluster does not have: the new pod waits for the old one's, the old one for the new pod, for ever.
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": spec.rollout.max_surge, "maxUnavailable": spec.rollout.max_unavailable},
        },
        # Kubernetes' ten minutes would call a large model's loading a failed rollout.
        "progressDeadlineSeconds": startup + _PLACEMENT_SECONDS,
        "template": {
            "metadata": {"labels": labels(owner, "engine")},
            "spec": _pod(service, owner, images, built),
        },
    }
    return owned(owner, "apps/v1", "Deployment", owner.name, "engine", spec=content)


def _pod(service: NightjarService, owner: Owner, images: Images, built: pod.Pod) -> Manifest:
    found: Manifest = {
        "containers": [engine(service, built.engine, images)],
        "volumes": volumes(service, owner, built),
        "securityContext": _security(service),
        # Neither container talks to the Kubernetes API.
        "automountServiceAccountToken": False,
        # A Service called `vllm` would otherwise put VLLM_PORT=tcp://… into the engine's environment.
        "enableServiceLinks": False,
        # In order: the endpoint is taken out while preStop sleeps, vLLM finishes its requests, both programs end.
        # The kubelet stops the sidecar after the engine, because it is a native one.
        "terminationGracePeriodSeconds": PRE_STOP_SECONDS + pod.drain_seconds(service) + _EXIT_SECONDS,
    }
    if built.sidecar is not None:
        found["initContainers"] = [sidecar(service, built.sidecar, images)]
    if service.spec.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": secret.name} for secret in service.spec.image_pull_secrets]
    return found | _scheduling(service, owner)


def _security(service: NightjarService) -> Manifest:
    security = service.spec.security
    found: Manifest = {
        "runAsNonRoot": True,
        "runAsUser": security.run_as_user,
        "runAsGroup": security.run_as_group,
        "fsGroup": security.fs_group,
        # Changing the owner of every file of a model cache takes minutes; only a wrong root is worth it.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if security.supplemental_groups:
        found["supplementalGroups"] = list(security.supplemental_groups)
    return found


def _scheduling(service: NightjarService, owner: Owner) -> Manifest:
    given = service.spec.scheduling.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if "topologySpreadConstraints" in given:
        # With their defaults: Kubernetes has none for these fields.
        given["topologySpreadConstraints"] = [
            {**spread.model_dump(mode="json", by_alias=True), "labelSelector": {"matchLabels": selector(owner)}}
            for spread in service.spec.scheduling.topology_spread_constraints
        ]
    return given
