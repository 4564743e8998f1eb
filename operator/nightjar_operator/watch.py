"""Kopf as the eyes of the operator: it watches, hands every event over, and keeps no state of its own.

Only `on.event` handlers are registered: they write nothing to the objects and need no finalizer, so an operator
that is gone never keeps an object from being deleted. Kopf runs in a thread with an event loop of its own: it
cancels every task it finds in its loop at the end, and a burst of events never delays a probe.
"""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import kopf
from kopf._core.engines.peering import Identity

from nightjar_operator.kinds import NIGHTJAR_SERVICE, SELECTOR, Kind
from nightjar_operator.settings import Webhook
from nightjar_operator.webhook import add_webhook

Json = dict[str, Any]
OnEvent = Callable[[Kind, str | None, Json], None]
"""Kind, type (None: from a listing) and object of an event."""

# An API server that answers with errors is asked again for about an hour; without an answer for ever.
_BACKOFFS = (1, 2, 4, 8, *[15] * 240)
# Kopf ends within a second or two of being told to.
_STOP_SECONDS = 10.0
# Kopf would ask for the user's name, and a container's user has none.
_IDENTITY = Identity("nightjar-operator")


@dataclass(frozen=True)
class Scope:
    """What is watched."""

    kinds: Iterable[Kind]
    namespaces: tuple[str, ...]
    """Empty: all."""


async def watch(
    scope: Scope,
    login: Callable[[], Awaitable[kopf.ConnectionInfo]],
    on_event: OnEvent,
    webhook: Webhook | None,
) -> None:
    """Watch until cancelled. `on_event` is called in this event loop.

    Any exception means that Kopf gave up and nothing is watched any more.
    """
    loop = asyncio.get_running_loop()
    registry = _registry(scope.kinds, login, lambda *event: loop.call_soon_threadsafe(on_event, *event))
    settings = _settings(scope.kinds)
    if webhook is not None:
        add_webhook(registry, settings, webhook)
    kopfs = _Thread(registry, settings, scope.namespaces)
    try:
        await kopfs.ended
    finally:
        kopfs.stop()
        await asyncio.wait([kopfs.ended], timeout=_STOP_SECONDS)


class _Thread:
    """Kopf in a thread; `ended` is done when it has ended, with its error if it had one."""

    def __init__(
        self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, namespaces: tuple[str, ...]
    ) -> None:
        self._ours = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._ours.create_future()
        self._kopfs = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._work = kopf.operator(
            registry=registry,
            settings=settings,
            clusterwide=not namespaces,
            namespaces=namespaces,
            identity=_IDENTITY,
            standalone=True,
            stop_flag=self._stop,
        )
        # A daemon: should Kopf ever hang, it does not keep the process from ending.
        threading.Thread(target=self._run, name="kopf", daemon=True).start()

    def stop(self) -> None:
        """Tell Kopf to end; nothing happens when it has."""
        with contextlib.suppress(RuntimeError):  # Its loop is closed.
            self._kopfs.call_soon_threadsafe(self._stop.set)

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self._kopfs) as runner:
                runner.run(self._work)
        except BaseException as found:  # noqa: BLE001 - whatever it is, it is handed over
            error = found
        with contextlib.suppress(RuntimeError):  # Our loop is closed: nobody waits any more.
            self._ours.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: BaseException | None) -> None:
        if self.ended.done():
            return
        if error is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))


def _registry(
    kinds: Iterable[Kind],
    login: Callable[[], Awaitable[kopf.ConnectionInfo]],
    hand_over: Callable[[Kind, str | None, Json], object],
) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def _login(**_: Any) -> kopf.ConnectionInfo:
        return await login()

    for kind in kinds:

        @kopf.on.event(kind.group, kind.version, kind.plural, registry=registry, id=f"see-{kind.plural}")
        async def _see(event: Any, kind: Kind = kind, **_: Any) -> None:
            hand_over(kind, event["type"], event["object"])

    return registry


def _settings(kinds: Iterable[Kind]) -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    # No Events of Kopf's own, and no permission to look at the definitions of kinds.
    settings.posting.enabled = False
    settings.scanning.disabled = True
    # It would kill the process some minutes after it ended by itself; we begin anew instead.
    settings.process.ultimate_exiting_timeout = None
    settings.networking.connect_timeout = 5
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = _BACKOFFS
    settings.watching.server_timeout = 300
    for kind in kinds:
        if kind != NIGHTJAR_SERVICE:
            settings.watching.label_selectors[kind.group, kind.version, kind.plural] = SELECTOR
    return settings
