"""Figures of one service: how soon its objects are there, what it costs while nothing happens, how soon it is tuned."""

import asyncio
import time
from functools import partial
from typing import Any

from nightjar_benchmarks.operator_figures.cluster_side import condition, edited, eventually, pods
from nightjar_benchmarks.operator_figures.stage import Stage
from nightjar_benchmarks.records import Figure
from nightjar_operator.kinds import CONFIG_MAP, DEPLOYMENT, NIGHTJAR_SERVICE, SERVICE
from nightjar_operator.pods import REFRESH_ANNOTATION

_APPLIES = 20
_TUNINGS = 5
_IDLE_SECONDS = 60
# What the parts before left to do, and what a new service's last pod still changes, is done by then.
_QUIET_SECONDS = 10


async def apply(there: Stage) -> dict[str, Figure]:
    """apply_to_manifests_s: the slowest of several, one after another."""
    # The API server holds back the first object of a definition that it has only just got, by two seconds.
    await there.create("first")
    await eventually(partial(_complete, there, "first"), "the objects of the first")
    seconds = []
    for number in range(_APPLIES):
        name = f"applied-{number}"
        began = time.monotonic()
        await there.create(name)
        await eventually(partial(_complete, there, name), f"the objects of {name}")
        seconds.append(round(time.monotonic() - began, 3))
    return {"apply_to_manifests_s": Figure(max(seconds), "s", seconds)}


async def idle(there: Stage) -> dict[str, Figure]:
    """idle_writes_per_minute: of a service whose pods serve and whose planner plans, with resyncs going on."""
    await there.create("steady")
    await _settled(there, "steady")
    # The conditions hold as soon as one pod is in step; the other is asked when all are asked again.
    await eventually(partial(_told, there, "steady"), "every pod to tell its length")
    await eventually(partial(_quiet, there), f"{_QUIET_SECONDS} s without a write")
    before = len(there.writes())
    await asyncio.sleep(_IDLE_SECONDS)
    made = there.writes()[before:]
    per_minute = len(made) * 60 / _IDLE_SECONDS
    raw = {"seconds": _IDLE_SECONDS, "writes": [f"{call.verb} {call.resource}" for call in made]}
    return {"idle_writes_per_minute": Figure(per_minute, "writes/min", raw)}


async def _told(there: Stage, name: str) -> bool:
    found = await there.admin.get(NIGHTJAR_SERVICE, there.namespace, name)
    told = [pod for pod in (found or {}).get("status", {}).get("pods", []) if "gamma" in pod]
    return found is not None and len(told) == found["spec"]["replicas"]


async def _quiet(there: Stage) -> bool:
    before = len(there.writes())
    await asyncio.sleep(_QUIET_SECONDS)
    return len(there.writes()) == before


async def tuning(there: Stage) -> dict[str, Figure]:
    """tuning_fake_sidecars_s: from an edit until status says that every pod obeys it, the slowest of several.

    Stand-in sidecars obey as soon as their pod is touched, so the kubelet's share is not in it.
    """
    await there.create("tuned")
    await _settled(there, "tuned")
    seconds = []
    for number in range(_TUNINGS):
        began = time.monotonic()
        old = await _revision(there, "tuned")
        await edited(there.admin, there.namespace, "tuned", _switch_cost(number))
        await eventually(partial(_touched, there, old), "every pod to be touched")
        await _settled(there, "tuned")
        seconds.append(round(time.monotonic() - began, 3))
    return {"tuning_fake_sidecars_s": Figure(max(seconds), "s", seconds)}


def _switch_cost(number: int) -> Any:
    def edit(found: dict[str, Any]) -> None:
        found["spec"]["planner"] = {"switchCost": f"{number + 1}ms"}

    return edit


async def _complete(there: Stage, name: str) -> bool:
    """Asked for one by one: listing them all would take longer than making them."""
    for kind, child in ((DEPLOYMENT, name), (CONFIG_MAP, f"{name}-settings"), (SERVICE, name)):
        if await there.admin.get(kind, there.namespace, child) is None:
            return False
    return True


async def _settled(there: Stage, name: str) -> None:
    """The pods serve and obey; the stand-ins obey what status wants."""
    there.sidecars.obeyed = await eventually(lambda: _revision(there, name), "a settings revision")

    async def in_step() -> bool:
        answers = [await condition(there.admin, there.namespace, name, kind) for kind in ("SettingsSynced", "Adaptive")]
        return answers == [("True", "Synced"), ("True", "Planning")]

    await eventually(in_step, f"{name} to be in step")


async def _revision(there: Stage, name: str) -> str:
    found = await there.admin.get(NIGHTJAR_SERVICE, there.namespace, name)
    return str((found or {}).get("status", {}).get("settingsRevision", ""))


async def _touched(there: Stage, old: str) -> bool:
    found = await pods(there.admin, there.namespace)
    marks = [pod["metadata"].get("annotations", {}).get(REFRESH_ANNOTATION, "") for pod in found]
    return all(mark and not mark.startswith(old) for mark in marks)
