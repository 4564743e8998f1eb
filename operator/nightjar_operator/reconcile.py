"""One service brought to where its spec says, and its status to where the service is.

Level-triggered: `reconcile` looks at everything, whatever woke it, and may be run at any time, any number of
times, and be broken off anywhere.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable
from datetime import datetime
from typing import Any

from nightjar_operator import refresh, telling
from nightjar_operator.apply import Applier
from nightjar_operator.cluster import Cluster
from nightjar_operator.cluster_errors import ClusterError, ForbiddenError, NameTakenError, RefusedError
from nightjar_operator.conditions import Transition, transitions
from nightjar_operator.desired import Desired, desired
from nightjar_operator.diagnosis import Facts, Problem, conditions
from nightjar_operator.kinds import DEPLOYMENT, EVENT, NIGHTJAR_SERVICE, POD
from nightjar_operator.manifests import Images
from nightjar_operator.pods import REFRESH_ANNOTATION
from nightjar_operator.status import dump, read, status
from nightjar_operator.store import Key, Seen, Store

Json = dict[str, Any]

_FIGURES_SECONDS = 30.0
"""The figures of a service move in its status at most this often."""

logger = logging.getLogger(__name__)


class Reconciler:
    """Several services at once, one call at a time for each."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        images: Images,
        instance: str,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._images = images
        self._instance = instance
        self._clock = clock
        self._now = now
        self._rng = rng
        self._applier = Applier(cluster, store)
        self._touched: dict[Key, dict[str, float]] = {}
        self._figures: dict[Key, float] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Gives the seconds after which to look again even if nothing happens.

        UnavailableError and RefusedError: to be tried again, later and later.
        """
        service = self._store.get(key).service
        if service is None or "deletionTimestamp" in service["metadata"]:
            self._forget(key)
            return None
        wanted = desired(service, self._images)
        if isinstance(wanted, Problem):
            # Nothing changes until the spec does.
            return await self._report(key, service, None, wanted)
        self._store.want(key, wanted.revision)
        refused = await self._applier.apply(wanted.owner, wanted.manifests)
        pauses = [
            await self._touch(key, wanted.revision),
            await self._report(key, service, wanted, _problem(refused)),
        ]
        if refused:
            raise refused[0]
        return min((pause for pause in pauses if pause is not None), default=None)

    def _forget(self, key: Key) -> None:
        """The service is gone; its objects go by their owner references."""
        self._applier.forget(key)
        self._figures.pop(key, None)
        self._touched.pop(key, None)

    async def _touch(self, key: Key, revision: str | None) -> float | None:
        """Have the newest settings file brought to pods that obey an older one."""
        seen, wait = self._store.get(key), None
        last = {pod.uid: self._touched.get(key, {}).get(pod.uid, -math.inf) for pod in seen.pods.values()}
        self._touched[key] = last
        for pod in list(seen.pods.values()):
            if revision is None or not refresh.is_behind(pod, revision, seen.reports.get(pod.uid)):
                continue
            value = refresh.next_touch(pod, revision, self._clock() - last[pod.uid])
            if value is not None:
                last[pod.uid] = self._clock()
                touched = await self._cluster.annotate(POD, key[0], pod.name, {REFRESH_ANNOTATION: value})
                if touched is not None:
                    self._store.observe(POD, touched)
            wait = refresh.pause(1)
        return wait

    async def _report(self, key: Key, service: Json, wanted: Desired | None, problem: Problem | None) -> float | None:
        """Write the status if it changed, and tell of every condition that did."""
        found = facts(self._store.get(key), service, wanted, problem)
        before = read(service.get("status", {}))
        since = self._clock() - self._figures.get(key, -math.inf)
        answers = conditions(found)
        address = wanted.address if wanted is not None else None
        after = status(found, answers, address, before, self._now(), fresh=since >= _FIGURES_SECONDS)
        if dump(after) != service.get("status"):
            await self._write(service, dump(after))
            changed = filter(telling.is_worth_telling, transitions(before.conditions, answers))
            await asyncio.gather(*(self._tell(service, transition) for transition in changed))
        if after.speculation != before.speculation:
            self._figures[key] = self._clock()
        return None if since >= _FIGURES_SECONDS else _FIGURES_SECONDS - since

    async def _write(self, service: Json, after: Json) -> None:
        metadata = {name: service["metadata"][name] for name in ("namespace", "name", "uid")}
        body = {"apiVersion": service["apiVersion"], "kind": service["kind"], "metadata": metadata, "status": after}
        written = await self._cluster.apply_status(NIGHTJAR_SERVICE, body)
        if written is not None:
            self._store.observe(NIGHTJAR_SERVICE, written)

    async def _tell(self, service: Json, transition: Transition) -> None:
        suffix = f"{self._rng.getrandbits(64):016x}"
        event = telling.event(service, transition, self._instance, suffix, self._now())
        try:
            await self._cluster.create(EVENT, service["metadata"]["namespace"], event)
        except ClusterError as error:
            # Events are for convenience; the status says the same.
            logger.warning("an Event could not be written: %s", error)


def facts(seen: Seen, service: Json, wanted: Desired | None, problem: Problem | None) -> Facts:
    """What the status is computed from; `wanted` is None when the spec cannot be read."""
    uid = service["metadata"]["uid"]
    deployments = (
        child.state for child in seen.children.values() if child.kind == DEPLOYMENT and child.controller == uid
    )
    return Facts(
        generation=service["metadata"]["generation"],
        problem=problem,
        policy=wanted.policy if wanted is not None else None,
        unplanned=wanted.unplanned if wanted is not None else None,
        revision=wanted.revision if wanted is not None else None,
        deployment=next(deployments, None),
        pods=tuple(pod for pod in seen.pods.values() if not pod.leaving),
        reports=seen.reports,
    )


def _problem(refused: list[RefusedError]) -> Problem | None:
    if not refused:
        return None
    reasons = {NameTakenError: "NameTaken", ForbiddenError: "Forbidden"}
    message = "; ".join(str(error) for error in refused)
    return Problem(reasons.get(type(refused[0]), "ObjectRefused"), message)
