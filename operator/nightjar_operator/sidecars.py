"""Asks the sidecars of all pods what they do: a few at a time, each with a deadline."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import aiohttp

from nightjar_operator.reports import MalformedReportError, Planning, Report, Silence, planning
from nightjar_operator.store import Key, Store

_TICK_SECONDS = 0.5
_IMPATIENT_SECONDS = 1.0
_TIMEOUT = aiohttp.ClientTimeout(total=2)
_AT_ONCE = 32


@dataclass(frozen=True)
class Target:
    """One sidecar to ask."""

    key: Key
    uid: str
    url: str
    impatient: bool
    """It is about to take new settings."""


class Rounds:
    """Who is asked when; times are seconds of any one clock. Pure but for the random spread."""

    def __init__(self, period_seconds: float, rng: random.Random) -> None:
        self._period = period_seconds
        self._rng = rng
        self._asking: set[str] = set()
        self._asked: dict[str, tuple[float, float]] = {}
        """When it last answered, or did not, and after how many seconds it is asked again."""

    def due(self, targets: list[Target], now: float) -> list[Target]:
        """Those to be asked now, each to be given back with `asked`; pods that are gone are forgotten."""
        there = {target.uid for target in targets}
        self._asked = {uid: asked for uid, asked in self._asked.items() if uid in there}
        chosen = [target for target in targets if target.uid not in self._asking and self._is_due(target, now)]
        self._asking.update(target.uid for target in chosen)
        return chosen

    def asked(self, target: Target, now: float) -> None:
        self._asking.discard(target.uid)
        # Spread, so that pods that were found together are not asked together for ever.
        self._asked[target.uid] = (now, self._period * self._rng.uniform(0.75, 1.25))

    def _is_due(self, target: Target, now: float) -> bool:
        if target.uid not in self._asked:
            return True
        asked, patience = self._asked[target.uid]
        return now >= asked + (min(patience, _IMPATIENT_SECONDS) if target.impatient else patience)


def targets(store: Store) -> Iterator[Target]:
    """Every pod with a sidecar that may answer."""
    for key in store.services():
        seen = store.get(key)
        for pod in seen.pods.values():
            if pod.address is None or pod.status_port is None or pod.leaving:
                continue
            report = seen.reports.get(pod.uid)
            impatient = isinstance(report, Planning) and report.revision != seen.wanted_revision
            host = f"[{pod.address}]" if ":" in pod.address else pod.address
            yield Target(key, pod.uid, f"http://{host}:{pod.status_port}/status", impatient)


async def poll(
    store: Store, rounds: Rounds, on_report: Callable[[Key], None], on_answer: Callable[[str], None]
) -> None:
    """Ask until cancelled. `on_report`: a service's picture changed; `on_answer`: "ok", "silent" or "malformed"."""
    loop = asyncio.get_running_loop()
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask(target: Target) -> None:
        async with limit:
            kind, report = await _status(session, target.url)
        rounds.asked(target, loop.time())
        on_answer(kind)
        if store.report(target.key, target.uid, report):
            on_report(target.key)

    # Pods are never behind the environment's proxy.
    connector = aiohttp.TCPConnector(limit=_AT_ONCE)
    async with (
        aiohttp.ClientSession(timeout=_TIMEOUT, connector=connector, trust_env=False) as session,
        asyncio.TaskGroup() as asking,
    ):
        while True:
            for target in rounds.due(list(targets(store)), loop.time()):
                asking.create_task(ask(target))
            await asyncio.sleep(_TICK_SECONDS)


async def _status(session: aiohttp.ClientSession, url: str) -> tuple[str, Report]:
    try:
        async with session.get(url, raise_for_status=True) as answer:
            return "ok", planning(await answer.json())
    except MalformedReportError as error:
        return "malformed", Silence(str(error))
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        return "silent", Silence(str(error) or "it did not answer within 2 s")
