"""One operator works, others wait: leader election by a Lease, the way Kubernetes' own controllers do it.

Whoever holds the Lease renews it; others take it over once it was not renewed for its duration, counted on their
own clock from when they last saw it change. A holder that cannot renew stops before that.

Own code because the client library's election waits for ever on a request without an answer, and gives nothing
back at the end.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from nightjar_operator.cluster import Cluster
from nightjar_operator.cluster_errors import ClusterError
from nightjar_operator.kinds import LEASE

Json = dict[str, Any]

DURATION_SECONDS = 15
_RENEW_SECONDS = 5.0
# A holder that could not renew for this long stops, well before others may take over.
_GIVE_UP_SECONDS = 10.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sighting:
    """A state of the Lease, and when this candidate first saw it."""

    holder: str
    renewed: str
    at: float


def sighting(lease: Json, last: Sighting | None, now: float) -> Sighting:
    """What `lease` says; its age counts from when it changed before our eyes, other machines' clocks aside."""
    spec = lease.get("spec", {})
    holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
    if last is not None and (last.holder, last.renewed) == (holder, renewed):
        return last
    return Sighting(holder, renewed, now)


def may_take(seen: Sighting, identity: str, now: float) -> bool:
    """Whether `identity` may write itself into the Lease."""
    return seen.holder in ("", identity) or now - seen.at >= DURATION_SECONDS


def taken(lease: Json, identity: str, moment: datetime) -> Json:
    """`lease` as `identity` holds it from `moment` on."""
    spec = lease.get("spec", {})
    stamp = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    own = spec.get("holderIdentity") == identity
    changed = {
        "holderIdentity": identity,
        "leaseDurationSeconds": DURATION_SECONDS,
        "acquireTime": spec.get("acquireTime", stamp) if own else stamp,
        "renewTime": stamp,
        "leaseTransitions": spec.get("leaseTransitions", 0) + (0 if own else 1),
    }
    return {**lease, "spec": {**spec, **changed}}


class Election:
    """One candidate for one Lease."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._now = now
        self._last: Sighting | None = None

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(_RENEW_SECONDS)
        logger.info("%s holds the lease %s/%s", self._identity, self._namespace, self._name)

    async def keep(self) -> None:
        """Renew the Lease; returns once it is lost, or could not be renewed for too long."""
        renewed = self._clock()
        while self._clock() - renewed < _GIVE_UP_SECONDS:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                async with asyncio.timeout(renewed + _GIVE_UP_SECONDS - self._clock()):
                    if not await self._renew():
                        break
                renewed = self._clock()
            except (ClusterError, TimeoutError) as error:
                logger.warning("the lease could not be renewed: %s", error or "no answer")
        logger.error("%s lost the lease %s/%s", self._identity, self._namespace, self._name)

    async def release(self) -> None:
        """Let the next one take over at once. Best effort: the Lease expires anyway."""
        try:
            found = await self._cluster.get(LEASE, self._namespace, self._name)
            if found is not None and found.get("spec", {}).get("holderIdentity") == self._identity:
                given = {**found, "spec": {**found["spec"], "holderIdentity": ""}}
                await self._cluster.replace(LEASE, self._namespace, self._name, given)
        except ClusterError as error:
            logger.warning("the lease could not be given back: %s", error)

    async def _try(self) -> bool:
        try:
            return await self._renew()
        except ClusterError as error:
            logger.warning("the lease could not be taken: %s", error)
            return False

    async def _renew(self) -> bool:
        """Take or renew the Lease; False when another holds it. A lost race is a ConflictError."""
        found = await self._cluster.get(LEASE, self._namespace, self._name)
        if found is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            empty = {"apiVersion": LEASE.api_version, "kind": LEASE.name, "metadata": metadata}
            body = taken(empty, self._identity, self._now())
            return await self._cluster.create(LEASE, self._namespace, body) is not None
        self._last = sighting(found, self._last, self._clock())
        if not may_take(self._last, self._identity, self._clock()):
            return False
        body = taken(found, self._identity, self._now())
        return await self._cluster.replace(LEASE, self._namespace, self._name, body) is not None
