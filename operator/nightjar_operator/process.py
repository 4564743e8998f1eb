"""The operator as one process: what feeds what, and in which order it starts and ends.

watch, resync, sidecars ──► store ──► queue ──► workers: reconcile ──► cluster
"""

import asyncio
import contextlib
import logging
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import kopf
from kubernetes.aio.client import ApiClient

from nightjar_operator import connection, health, sidecars
from nightjar_operator.backlog import retry_delay
from nightjar_operator.cluster import Cluster
from nightjar_operator.cluster_errors import ClusterError, UnavailableError
from nightjar_operator.kinds import NIGHTJAR_SERVICE, Kind
from nightjar_operator.lease import Election
from nightjar_operator.operator_metrics import Metrics
from nightjar_operator.reconcile import Reconciler
from nightjar_operator.resync import Resync
from nightjar_operator.settings import Settings
from nightjar_operator.store import Json, Key, Store
from nightjar_operator.watch import Scope, watch
from nightjar_operator.work_queue import WorkQueue

# A rollout is many small changes of a service's pods: they are looked at together, and after what people wrote.
_SETTLE_SECONDS = 0.5

logger = logging.getLogger(__name__)


class LeaseLostError(RuntimeError):
    """Another operator works now, or may begin to; this process must end."""


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Work until `stop`.

    ConfigurationError when there is no access to a cluster or no address to listen on; LeaseLostError.
    """
    configuration = await connection.configuration(settings.kubeconfig)
    metrics = Metrics()
    async with ApiClient(configuration) as client:
        process = _Process(settings, Cluster(client, metrics.observe_write), metrics, random.Random())  # noqa: S311
        async with health.serve(
            settings.host, settings.port, lambda: None, process.unready, process.exposition
        ) as port:
            logger.info("health and metrics on port %d", port)
            await process.run_until(stop, lambda: connection.for_kopf(configuration))


async def run_until_signalled(settings: Settings) -> None:
    """`run` until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(settings, stop)


class _Process:
    def __init__(self, settings: Settings, cluster: Cluster, metrics: Metrics, rng: random.Random) -> None:
        self._settings = settings
        self._cluster = cluster
        self._metrics = metrics
        self._rng = rng
        self._store = Store()
        self._queue: WorkQueue[Key] = WorkQueue(time.monotonic, rng)
        self._resync = Resync(cluster, self._store, self._queue, settings.namespaces, metrics, time.monotonic, rng)
        self._reconciler = Reconciler(
            cluster, self._store, settings.images, settings.identity, time.monotonic, _now, rng
        )
        self._blind: str | None = "watching has not begun yet"
        # One that stands by would never empty its queue; it looks at every service when it begins to work.
        self._works = False

    def unready(self) -> str | None:
        return self._resync.problem or self._blind

    def exposition(self) -> bytes:
        backlog = self._queue.backlog
        self._metrics.queue.set(len(backlog))
        self._metrics.failing.set(backlog.failing)
        self._metrics.observe_services(self._store.get(key) for key in self._store.services())
        return self._metrics.text()

    async def run_until(self, stop: asyncio.Event, login: Callable[[], Awaitable[kopf.ConnectionInfo]]) -> None:
        working = asyncio.ensure_future(self._run(login))
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working

    async def _run(self, login: Callable[[], Awaitable[kopf.ConnectionInfo]]) -> None:
        await self._resync.load()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._watch(login))
                async with self._leading(tasks):
                    self._works = True
                    self._metrics.leader.set(1)
                    await self._work()
        except ExceptionGroup as group:
            lost, others = group.split(LeaseLostError)
            if lost is None or others is not None:
                raise
            # By itself, for those who tell it from a bug.
            raise LeaseLostError(
                "the lease is required to work, found it lost; this process ends, another takes over"
            ) from group

    async def _work(self) -> None:
        """What only one operator at a time does."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._resync.run(self._settings.resync_seconds))
            tasks.create_task(self._poll())
            for _ in range(self._settings.workers):
                tasks.create_task(self._reconcile())

    @contextlib.asynccontextmanager
    async def _leading(self, tasks: asyncio.TaskGroup) -> AsyncIterator[None]:
        if self._settings.lease is None:
            yield
            return
        namespace, name = self._settings.lease
        election = Election(self._cluster, namespace, name, self._settings.identity, time.monotonic, _now)
        await election.acquire()
        tasks.create_task(_until_lost(election))
        try:
            yield
        finally:
            # Nothing of ours writes any more: the next one may begin at once.
            await election.release()

    async def _watch(self, login: Callable[[], Awaitable[kopf.ConnectionInfo]]) -> None:
        failures = 0
        while True:
            self._blind = None
            scope = Scope(self._resync.kinds, self._settings.namespaces)
            try:
                await watch(scope, login, self._see, self._settings.webhook)
            except Exception as error:  # Whatever ended Kopf, the answer is to begin again.
                self._blind = f"watching ended: {error}"
                logger.exception("watching ended; it begins again")
            failures += 1
            self._metrics.watch_restarts.inc()
            self._resync.ask()
            await asyncio.sleep(retry_delay(failures, self._rng))

    def _see(self, kind: Kind, change: str | None, found: Json) -> None:
        key = self._store.forget(kind, found) if change == "DELETED" else self._store.observe(kind, found)
        if key is not None and self._works:
            self._queue.add(key, 0.0 if kind == NIGHTJAR_SERVICE else _SETTLE_SECONDS)
        if change is None:
            # Kopf lists when it begins, and when it lost its place: then deletions went unseen.
            self._resync.ask()

    async def _poll(self) -> None:
        rounds = sidecars.Rounds(self._settings.poll_seconds, self._rng)

        def count(result: str) -> None:
            self._metrics.polls.labels(result).inc()

        await sidecars.poll(self._store, rounds, self._queue.add, count)

    async def _reconcile(self) -> None:
        """One worker."""
        while True:
            key = await self._queue.take()
            began = time.monotonic()
            result = await self._reconcile_one(key)
            self._metrics.reconciles.labels(result).observe(time.monotonic() - began)
            self._resync.looked_at(key)

    async def _reconcile_one(self, key: Key) -> str:
        try:
            again = await self._reconciler.reconcile(key)
        except ClusterError as error:
            delay = self._queue.failed(key)
            logger.warning("%s/%s: tried again in %.1f s: %s", *key, delay, error)
            return "unavailable" if isinstance(error, UnavailableError) else "refused"
        except Exception:  # One service must not stop the others; this one is tried again, later and later.
            delay = self._queue.failed(key)
            logger.exception("%s/%s: tried again in %.1f s after an error that is a bug", *key, delay)
            return "bug"
        self._queue.done(key)
        if again is not None:
            self._queue.add(key, again)
        return "ok"


async def _until_lost(election: Election) -> None:
    await election.keep()
    raise LeaseLostError


def _now() -> datetime:
    return datetime.now(UTC)
