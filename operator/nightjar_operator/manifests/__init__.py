"""NightjarService -> the Kubernetes objects that serve it.

Pure: equal input gives equal output, byte for byte, so that an unchanged spec never rolls a pod.
"""

from nightjar_api.errors import ConfigurationError
from nightjar_api.model import cluster_problems
from nightjar_api.service import NightjarService
from nightjar_operator import pod
from nightjar_operator.manifests import around, places
from nightjar_operator.manifests.deployment import deployment
from nightjar_operator.manifests.identity import Images, Manifest, Owner, selector

__all__ = ["Images", "Manifest", "Owner", "manifests", "selector", "url"]


def manifests(service: NightjarService, owner: Owner, images: Images) -> list[Manifest]:
    """Every object `service` asks for; ConfigurationError names each field that no cluster can obey."""
    problems = cluster_problems(service.spec, "spec")
    if problems:
        raise ConfigurationError("\n".join(f"NightjarService {owner.name}: {problem}" for problem in problems))
    built = pod.build(service, places.layout(service))
    objects = [
        around.claim(service, owner),
        around.settings_map(built, owner),
        deployment(service, owner, images, built),
        around.service(service, owner),
        around.autoscaler(service, owner),
        around.disruption_budget(service, owner),
        around.pod_monitor(service, owner, built),
    ]
    return [found for found in objects if found is not None]


def url(service: NightjarService, owner: Owner) -> str:
    """The OpenAI API, as clients in the cluster reach it."""
    port = service.spec.service.port
    return f"http://{owner.name}.{owner.namespace}.svc{'' if port == 80 else f':{port}'}/v1"
