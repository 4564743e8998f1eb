"""Figures of many services: memory, a full resync, the slowest reconciles."""

import asyncio
from collections.abc import Mapping

from nightjar_benchmarks.operator_figures.cluster_side import eventually
from nightjar_benchmarks.operator_figures.stage import Stage
from nightjar_benchmarks.records import Figure
from nightjar_operator.kinds import NIGHTJAR_SERVICE

_AT_ONCE = 8
_GROWTH_SECONDS = 900.0
_RESYNCS = 3
_RESYNC = "nightjar_operator_resync_seconds"
_RECONCILE = "nightjar_operator_reconcile_seconds"


async def measure(there: Stage, count: int) -> dict[str, Figure]:
    """services, memory_mib (peak), resync_s (slowest of several), reconcile_p99_s (its histogram's upper bound)."""
    await _create(there, count)
    await eventually(lambda: _all_serve(there, count), f"{count} services to serve", _GROWTH_SECONDS)
    resyncs = await _resyncs(there)
    found = await there.metrics()
    return {
        "services": Figure(count, "services"),
        "memory_mib": Figure(round(there.peak_mib(), 1), "MiB"),
        "resync_s": Figure(max(resyncs), "s", resyncs),
        "reconcile_p99_s": Figure(_p99(found), "s", _buckets(found)),
    }


async def _create(there: Stage, count: int) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with limit:
            await there.create(f"service-{number:04}")

    async with asyncio.TaskGroup() as making:
        for number in range(count):
            making.create_task(one(number))


async def _all_serve(there: Stage, count: int) -> bool:
    """Two pods ready in each, and its planner heard; the stand-ins obey what the services want, which is one thing."""
    listing = await there.admin.list(NIGHTJAR_SERVICE, there.namespace, "")
    statuses = [item.get("status", {}) for item in listing.items] if listing is not None else []
    there.sidecars.obeyed = next((one["settingsRevision"] for one in statuses if "settingsRevision" in one), "")
    ready = sum(one.get("readyReplicas") == 2 and "speculation" in one for one in statuses)
    if ready < count:
        # Asking all of them all the time would be most of the load.
        await asyncio.sleep(2)
    return bool(ready == count)


async def _resyncs(there: Stage) -> list[float]:
    """How long each of the next few took, by the sums of the operator's own histogram."""
    found: list[float] = []
    last = await there.metrics()
    while len(found) < _RESYNCS:
        await asyncio.sleep(1)
        now = await there.metrics()
        if now[f"{_RESYNC}_count"] == last[f"{_RESYNC}_count"] + 1:
            found.append(round(now[f"{_RESYNC}_sum"] - last[f"{_RESYNC}_sum"], 3))
        last = now
    return found


def _buckets(found: Mapping[str, float]) -> dict[str, float]:
    """Reconciles by upper bound of their seconds, results summed; each bucket holds the ones below it."""
    prefix = f"{_RECONCILE}_bucket["
    counts: dict[str, float] = {}
    for name, value in found.items():
        if name.startswith(prefix):
            bound = name.removeprefix(prefix).split("]")[0]
            counts[bound] = counts.get(bound, 0) + value
    return dict(sorted(counts.items(), key=lambda item: float(item[0])))


def _p99(found: Mapping[str, float]) -> float:
    counts = _buckets(found)
    total = max(counts.values())
    return next(float(bound) for bound, count in counts.items() if count >= 0.99 * total)
