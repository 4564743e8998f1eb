"""Composes the sidecar: follows the settings file and the engine, sends plans, serves the pages."""

import asyncio
import contextlib
import itertools
import logging
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_exponential_jitter

from nightjar_api import settings as settings_api
from nightjar_api.errors import ConfigurationError
from nightjar_sidecar import http, settings_file
from nightjar_sidecar.controller import Controller
from nightjar_sidecar.engine_client import EngineClient
from nightjar_sidecar.errors import ChangeRefused, EngineAway
from nightjar_sidecar.memory import Change

_LOG = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS = 0.1
_LONGEST_WAIT_SECONDS = 3.0
# A connection that lasted so long was a good one: the next attempt starts with the shortest wait again.
_GOOD_SECONDS = 5.0
# Between a bug and the next attempt; far below the minute after which the kubelet takes silence for death.
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Options:
    """Where the engine and the settings are, and where the pages are served; port 0 is any free one."""

    engine_socket: Path
    settings: Path
    host: str
    port: int


async def run_until_signalled(options: Options) -> None:
    """`run` until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await run(options, stop)


async def run(options: Options, stop: asyncio.Event, on_listening: Callable[[int], None] | None = None) -> None:
    """Run until `stop` is set; ConfigurationError when the settings or the address are no use.

    Any other error is a bug: it is logged, and the work begins anew, with nothing learnt. Were this process to end
    instead, Kubernetes would take its pod out of service until the container is started again, later each time.
    `on_listening` is called with the port that is served, each time.
    """
    for failures in itertools.count():
        try:
            await _work(options, stop, on_listening)
        except ConfigurationError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is: the engine serves on, and its pod must, too
            seconds = min(_FIRST_PAUSE_SECONDS * 2 ** min(failures, 10), _LONGEST_PAUSE_SECONDS)
            _LOG.exception("begins anew in %.1f s, with nothing learnt, after an error that is a bug", seconds)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), seconds)
        if stop.is_set():
            return


async def _work(options: Options, stop: asyncio.Event, on_listening: Callable[[int], None] | None) -> None:
    first = settings_api.load(options.settings)
    controller = Controller(first, time.monotonic, Random())  # noqa: S311 - exploration, no secret
    async with http.serve(controller, options.host, options.port) as port:
        _LOG.info("http://%s:%d serves the page, /metrics, /healthz, /readyz and /status", options.host, port)
        if on_listening is not None:
            on_listening(port)
        wake = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_follow_settings(options.settings, controller, wake)),
                group.create_task(_follow_engine(options.engine_socket, controller, wake)),
            ]
            await stop.wait()
            for task in tasks:
                task.cancel()


async def _follow_settings(path: Path, controller: Controller, wake: asyncio.Event) -> None:
    async for outcome in settings_file.follow(path, controller.settings):
        if isinstance(outcome, ConfigurationError):
            controller.refuse_settings(outcome)
        else:
            controller.change_settings(outcome)
            wake.set()


async def _follow_engine(socket: Path, controller: Controller, wake: asyncio.Event) -> None:
    def lost(state: RetryCallState) -> None:
        controller.engine_lost(str(state.outcome.exception()) if state.outcome else "unknown")

    while True:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(EngineAway),
            wait=wait_exponential_jitter(
                multiplier=_FIRST_WAIT_SECONDS, max=_LONGEST_WAIT_SECONDS, jitter=_FIRST_WAIT_SECONDS
            ),
            before_sleep=lost,
        ):
            with attempt:
                await _session(socket, controller, wake)


async def _session(socket: Path, controller: Controller, wake: asyncio.Event) -> None:
    """One connection. EngineAway when it ends early; returns when it ends after a good while."""
    started = asyncio.get_running_loop().time()
    try:
        async with EngineClient(socket) as engine:
            controller.engine_connected(await engine.info())
            await _first_to_end(_watch(engine, controller, wake), _steer(engine, controller, wake))
    except EngineAway as error:
        if asyncio.get_running_loop().time() - started < _GOOD_SECONDS:
            raise
        controller.engine_lost(str(error))


async def _first_to_end(*works: Coroutine[None, None, None]) -> None:
    """Run all until one ends or fails; the others are cancelled.

    No TaskGroup: before Python 3.13 it loses a cancellation that meets a failure, and this would not stop.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(engine: EngineClient, controller: Controller, wake: asyncio.Event) -> None:
    first = True
    async for batch in engine.steps():
        controller.observe(batch)
        wake.set()
        if first:
            # The draft's size is known from the first step on.
            controller.info = await engine.info()
            first = False


async def _steer(engine: EngineClient, controller: Controller, wake: asyncio.Event) -> None:
    """Send a plan whenever the decision changed or the last one needs renewal, and change the memory when it is due."""
    while True:
        wake.clear()
        # First: before the draft leaves, a plan without it must be in force.
        controller.memory.consider(controller.clock())
        plan = controller.plan_due()
        if plan is not None:
            await engine.apply(plan)
            controller.plan_applied(plan)
            continue
        change = controller.memory.wanted
        if change is not None:
            await _change_memory(engine, controller, change)
            continue
        try:
            async with asyncio.timeout(controller.seconds_to_next()):
                await wake.wait()
        except TimeoutError:
            continue


async def _change_memory(engine: EngineClient, controller: Controller, change: Change) -> None:
    try:
        controller.memory_changed(change, await engine.change_memory(change))
    except ChangeRefused as error:
        controller.memory_refused(change, str(error))
