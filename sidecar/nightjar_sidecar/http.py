"""One port for people, Prometheus and the kubelet."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from nightjar_api.errors import ConfigurationError
from nightjar_sidecar.controller import Controller
from nightjar_sidecar.page.document import document
from nightjar_sidecar.status import status

_CONTROLLER = web.AppKey("controller", Controller)


@asynccontextmanager
async def serve(controller: Controller, host: str, port: int) -> AsyncIterator[int]:
    """Serve on `host`:`port` (0: any free port) until the block ends; gives the port.

    ConfigurationError when the address cannot be bound.
    """
    app = web.Application()
    app[_CONTROLLER] = controller
    app.add_routes(
        [
            web.get("/", _page),
            web.get("/metrics", _metrics),
            web.get("/healthz", _healthz),
            web.get("/readyz", _readyz),
            web.get("/status", _status),
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await _start(site, host, port)
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def _start(site: web.TCPSite, host: str, port: int) -> None:
    try:
        await site.start()
    except OSError as error:
        found = "it is taken" if error.errno == errno.EADDRINUSE else str(error.strerror or error)
        raise ConfigurationError(
            f"--host, --port: an address to listen on is required, found {host}:{port}: {found};"
            f" choose another with --port"
        ) from error


async def _page(_request: web.Request) -> web.Response:
    made = document()
    headers = {
        "Content-Security-Policy": made.policy,
        "X-Content-Type-Options": "nosniff",
        # An upgraded sidecar's page must not meet the old one's status.
        "Cache-Control": "no-cache",
    }
    return web.Response(body=made.body, content_type="text/html", charset="utf-8", headers=headers)


async def _metrics(request: web.Request) -> web.Response:
    text = request.app[_CONTROLLER].metrics.text()
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _readyz(request: web.Request) -> web.Response:
    reason = request.app[_CONTROLLER].unready()
    return web.Response(text="ok\n") if reason is None else web.Response(status=503, text=reason + "\n")


async def _status(request: web.Request) -> web.Response:
    return web.json_response(status(request.app[_CONTROLLER]))
