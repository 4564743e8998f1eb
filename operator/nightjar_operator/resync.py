"""Lists everything and looks at every service: at the start, now and then, and when a watch may have gaps."""

import asyncio
import logging
import random
from collections.abc import Callable
from http import HTTPStatus

from nightjar_operator.backlog import retry_delay
from nightjar_operator.cluster import Cluster
from nightjar_operator.cluster_errors import ClusterError, RefusedError
from nightjar_operator.kinds import CHILDREN, NIGHTJAR_SERVICE, POD, SELECTOR, Kind
from nightjar_operator.operator_metrics import Metrics
from nightjar_operator.store import Key, Store
from nightjar_operator.work_queue import WorkQueue

KINDS = (NIGHTJAR_SERVICE, *CHILDREN, POD)
_SHORTEST_PAUSE_SECONDS = 10.0

logger = logging.getLogger(__name__)


class Resync:
    """`problem` says why the latest listing failed; None after one that did not."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        queue: WorkQueue[Key],
        namespaces: tuple[str, ...],
        metrics: Metrics,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._queue = queue
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._asked = asyncio.Event()
        self._open: set[Key] = set()
        self._began = 0.0
        self.problem: str | None = "the cluster has not been listed yet"
        self.kinds: list[Kind] = []
        """Those that the cluster knew at the latest listing."""

    def ask(self) -> None:
        """Something may have been missed: list again soon."""
        self._asked.set()

    def looked_at(self, key: Key) -> None:
        """`key` was reconciled; the last one ends the resync."""
        if key in self._open:
            self._open.remove(key)
            if not self._open:
                self._metrics.resyncs.observe(self._clock() - self._began)

    async def load(self) -> None:
        """List everything into the store, as often as it takes."""
        failures = 0
        while True:
            try:
                return await self._list()
            except ClusterError as error:
                failures += 1
                self.problem = str(error)
                self._metrics.resync_failures.inc()
                logger.warning("the cluster could not be listed: %s", error)
                await asyncio.sleep(retry_delay(failures, self._rng))

    async def run(self, period_seconds: float) -> None:
        """Until cancelled."""
        while True:
            self._asked.clear()
            self._began = self._clock()
            await self.load()
            self._open = set(self._store.services())
            for key in self._open:
                self._queue.add(key)
            # Watches that break one after another ask one after another.
            await asyncio.sleep(min(period_seconds, _SHORTEST_PAUSE_SECONDS))
            try:
                async with asyncio.timeout(max(0.0, period_seconds - _SHORTEST_PAUSE_SECONDS)):
                    await self._asked.wait()
            except TimeoutError:
                continue

    async def _list(self) -> None:
        kinds = []
        for kind in KINDS:
            selector = "" if kind == NIGHTJAR_SERVICE else SELECTOR
            for namespace in self._namespaces:
                listing = await self._cluster.list(kind, namespace, selector)
                if listing is not None:
                    self._store.replace(kind, listing, namespace)
                    kinds.append(kind)
                elif not kind.optional:
                    raise RefusedError(
                        f"{kind.plural}: a cluster that knows {kind.api_version}/{kind.name} is required, found none;"
                        f" install its definition (crds/)",
                        HTTPStatus.NOT_FOUND,
                    )
        self.kinds = list(dict.fromkeys(kinds))
        self.problem = None
