"""A NightjarService as the API gives it -> what the cluster should hold for it, or why nothing can be made of it."""

from dataclasses import dataclass
from typing import Any

from nightjar_api.errors import ConfigurationError
from nightjar_api.service import from_object
from nightjar_operator import pod
from nightjar_operator.diagnosis import Problem
from nightjar_operator.manifests import Images, Owner, manifests, selector, url
from nightjar_operator.notices import why_unplanned
from nightjar_operator.status import Address

Json = dict[str, Any]


@dataclass(frozen=True)
class Desired:
    """What the cluster should hold for one service."""

    owner: Owner
    manifests: list[Json]
    address: Address
    policy: str | None
    """The planner's; None when there is nothing to plan."""
    unplanned: str | None
    """Why there is nothing to plan."""
    revision: str | None
    """Names the settings that every sidecar should obey; None without sidecars."""


def desired(found: Json, images: Images) -> Desired | Problem:
    metadata = found["metadata"]
    owner = Owner(metadata["namespace"], metadata["name"], metadata["uid"])
    try:
        service = from_object(found)
        objects = manifests(service, owner, images)
    except ConfigurationError as error:
        # Admission refuses most of this; what was stored before a rule was made still arrives here.
        return Problem("InvalidSpec", str(error))
    planned = pod.is_planned(service)
    return Desired(
        owner,
        objects,
        address=Address(",".join(f"{name}={value}" for name, value in selector(owner).items()), url(service, owner)),
        policy=service.spec.planner.policy if planned else None,
        unplanned=why_unplanned(service),
        revision=pod.revision(service) if planned else None,
    )
