"""/healthz, /readyz and /metrics on one port, for the kubelet and for Prometheus."""

import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from nightjar_api.errors import ConfigurationError

Reason = Callable[[], str | None]
"""Why not; None when all is well."""


@asynccontextmanager
async def serve(
    host: str, port: int, unhealthy: Reason, unready: Reason, metrics: Callable[[], bytes]
) -> AsyncIterator[int]:
    """Serve on `host`:`port` (0: any free port) until the block ends; gives the port.

    ConfigurationError when the address cannot be bound.
    """

    def probe(reason: Reason) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(_request: web.Request) -> web.Response:
            found = reason()
            return web.Response(text="ok\n") if found is None else web.Response(status=503, text=found + "\n")

        return answer

    async def exposition(_request: web.Request) -> web.Response:
        return web.Response(body=metrics(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    app = web.Application()
    app.add_routes(
        [web.get("/healthz", probe(unhealthy)), web.get("/readyz", probe(unready)), web.get("/metrics", exposition)]
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
