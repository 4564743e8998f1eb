"""One server that answers /status for every pod of a cluster in which nothing runs. A stand-in, named as one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Json = dict[str, Any]

_ARMS = [
    {
        "gamma": gamma,
        "believedSecondsPerToken": 0.005 - 0.0005 * gamma,
        "visits": 1200 * gamma,
        "measuredSecondsPerToken": 0.005 - 0.0005 * gamma if gamma else None,
        "measuredMarginSeconds": 0.0001 if gamma else None,
    }
    for gamma in range(4)
]


class FakeSidecars:
    """All say the same."""

    def __init__(self) -> None:
        self.obeyed = ""
        """Names the settings that all of them obey."""
        self.asked = 0
        """How often any of them was asked."""

    async def answer(self, _request: web.Request) -> web.Response:
        self.asked += 1
        return web.json_response(status(self.obeyed))


def status(revision: str) -> Json:
    """What a sidecar says that plans for a steady load."""
    bounds = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    return {
        "ready": True,
        "reason": None,
        "engine": {"connected": True, "error": None, "info": None},
        "settings": {"revision": revision, "error": None, "planner": {"policy": "nightjar"}},
        "plan": {"version": 12, "ageSeconds": 0.5, "obeyed": True},
        "buckets": [
            {"minBatch": low + 1, "maxBatch": high, "gamma": 3 if high <= 32 else 0, "schedule": [], "arms": _ARMS}
            for low, high in zip((0, *bounds), bounds, strict=False)
        ],
        "regret": {"share": 0.0123, "rounds": 900},
        "speculation": {
            "gamma": 3,
            "acceptance": [0.81, 0.64, 0.52],
            "switches": {"total": 4},
            "draftResidency": "DRAFT_RESIDENCY_ON_DEVICE",
        },
        "switchCost": {"mode": "auto", "seconds": 0.0123, "staleTokens": 700},
        "memory": {"elastic": False, "draftResidency": "DRAFT_RESIDENCY_ON_DEVICE", "latest": None},
        "steps": {
            "seen": 1000,
            "perSecond": 110.0,
            "running": 8,
            "waiting": 0,
            "batch": 8,
            "tokensPerSecond": 812.0,
            "freeBlocks": 750,
            "totalBlocks": 1000,
        },
        "memoryBytes": {"targetKv": 6 << 30, "draftKv": 1 << 30, "draftWeights": 1 << 30},
        "events": [{"number": 9, "kind": "gamma", "message": "γ 0 → 3", "count": 2, "ageSeconds": 31.0}],
    }


@asynccontextmanager
async def serving(sidecars: FakeSidecars, port: int) -> AsyncIterator[None]:
    """Answer on every address of this machine: fake pods have addresses of its loopback."""
    app = web.Application()
    app.router.add_get("/status", sidecars.answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104
        yield
    finally:
        await runner.cleanup()
