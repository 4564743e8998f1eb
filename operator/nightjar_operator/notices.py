"""What a person wrote that will have no effect, so that nobody waits for it."""

from nightjar_api.model import Model
from nightjar_api.service import NightjarService

_CLUSTER_ONLY = (
    *("credentials", "replicas", "sidecar", "scheduling", "cache", "service", "autoscaling", "disruption"),
    *("monitoring", "rollout", "security", "imagePullSecrets", "engine.image", "engine.device", "engine.resources"),
)
_PLANNED_ONLY = ("planner", "memory", "fallback", "sidecar", "engine.catchUpTokens")


def without_planning(service: NightjarService) -> list[str]:
    """One sentence about the fields that only a planned speculative length obeys; none when it is planned."""
    why = why_unplanned(service)
    given = _given(service.spec, _PLANNED_ONLY)
    return [f"{', '.join(given)}: no effect, {why}"] if why is not None and given else []


def why_unplanned(service: NightjarService) -> str | None:
    """None when a sidecar plans the speculative length."""
    draft = service.spec.draft
    if draft is None:
        return "the service has no draft"
    return None if draft.is_planned else f"vLLM serves {draft.method} with a fixed length"


def outside_a_cluster(service: NightjarService) -> list[str]:
    """One sentence about the fields that only a cluster obeys."""
    given = _given(service.spec, _CLUSTER_ONLY)
    return [f"{', '.join(given)}: no effect here, only a cluster obeys"] if given else []


def _given(spec: Model, paths: tuple[str, ...]) -> list[str]:
    """Those of `paths` that say something other than their default."""
    return [f"spec.{path}" for path in paths if _differs(spec, path.split("."))]


def _differs(part: Model, path: list[str]) -> bool:
    name, field = next(
        (name, field) for name, field in type(part).model_fields.items() if (field.alias or name) == path[0]
    )
    value = getattr(part, name)
    return _differs(value, path[1:]) if path[1:] else bool(value != field.default)
