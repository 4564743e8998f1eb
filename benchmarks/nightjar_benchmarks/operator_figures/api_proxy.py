"""A proxy before a Kubernetes API that counts what passes, and can fail the way networks and API servers do."""

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

from nightjar_benchmarks.ports import free_port

# Between two neighbours only: a proxy must not pass them on.
_HOP_HEADERS = {"Host", "Transfer-Encoding", "Connection", "Keep-Alive", "Content-Length", "Content-Encoding"}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_EXPIRED = {
    "apiVersion": "v1",
    "kind": "Status",
    "status": "Failure",
    "message": "too old resource version",
    "reason": "Expired",
    "code": 410,
}
WRITES = frozenset(_VERBS.values())


@dataclass(frozen=True, order=True)
class Call:
    """A request in the words of RBAC."""

    group: str
    resource: str
    """With the subresource: `deployments`, `pods/status`."""
    verb: str
    namespace: str = ""
    name: str = ""


class Interruption(Exception):  # noqa: N818 - not an error: what a hook raises to leave a request unanswered
    """The request's connection is cut."""


Hook = Callable[[Call], Awaitable[None]]


class ApiProxy:
    """Listens on the loopback, without TLS; tokens pass through."""

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig
        self._port = free_port()
        self._runner: web.AppRunner | None = None
        self._listening: socket.socket | None = None
        self.calls: list[Call] = []
        """Everything that was asked, in order."""
        self.unanswered = 0
        """How many calls about single objects wait for an answer."""
        self.before: Hook | None = None
        """Awaited before a call is passed on; `Interruption` cuts it off: the API never hears of it."""
        self.after: Hook | None = None
        """Awaited when the API has answered; `Interruption` cuts it off: the caller never hears of it."""
        self.gone = False
        """Watches are answered as an API server does that has forgotten their place: with an error, 410 Gone."""

    async def __aenter__(self) -> Self:
        self._upstream = Configuration()
        await config.load_kube_config(str(self._kubeconfig), client_configuration=self._upstream)
        context = ssl.create_default_context(cafile=self._upstream.ssl_ca_cert)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context, limit=0), auto_decompress=False, trust_env=False
        )
        await self.up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.down()
        await self._session.close()

    async def up(self) -> None:
        """Listen, on the same port every time."""
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        self._listening = socket.create_server(("127.0.0.1", self._port), backlog=128)
        await web.SockSite(self._runner, self._listening).start()

    async def down(self) -> None:
        """Refuse connections, and cut those that are open."""
        if self._runner is not None and self._listening is not None:
            # What was accepted in this very moment is to belong to the server, or nobody would close it.
            asyncio.get_running_loop().remove_reader(self._listening)
            await asyncio.sleep(0)
            self.cut()
            runner, self._runner = self._runner, None
            await runner.cleanup()

    def cut(self) -> None:
        """End every open connection."""
        server = None if self._runner is None else self._runner.server
        for connection in server.connections if server is not None else ():
            if connection.transport is not None:
                connection.transport.abort()

    def writes(self) -> list[Call]:
        return [call for call in self.calls if call.verb in WRITES]

    def kubeconfig(self, path: Path, token: str | None = None) -> Path:
        """Write a kubeconfig that leads here, for the user of `token`; for the administrator if unset."""
        if token is None:
            token = self._upstream.api_key["BearerToken"].removeprefix("Bearer ")
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(document), encoding="utf-8")
        path.chmod(0o600)
        return path

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if transport is None:  # The caller is gone already.
            return web.Response(status=502)
        try:
            return await self._passed(request)
        except (Interruption, ConnectionError):  # Cut by us, or by the caller.
            transport.abort()
            return web.Response(status=502)

    async def _passed(self, request: web.Request) -> web.StreamResponse:
        call = call_of(request.method, request.path, request.query)
        is_awaited = call is not None and call.verb not in ("list", "watch")
        self.unanswered += is_awaited
        try:
            return await self._answered(request, call)
        finally:
            self.unanswered -= is_awaited

    async def _answered(self, request: web.Request, call: Call | None) -> web.StreamResponse:
        if call is not None:
            self.calls.append(call)
            if self.gone and call.verb == "watch":
                return web.json_response({"type": "ERROR", "object": _EXPIRED})
            if self.before is not None:
                await self.before(call)
        headers = {name: value for name, value in request.headers.items() if name.title() not in _HOP_HEADERS}
        async with self._session.request(
            request.method,
            f"{self._upstream.host}{request.path_qs}",
            headers=headers,
            data=await request.read() or None,
            timeout=aiohttp.ClientTimeout(total=None),
        ) as answer:
            if call is not None and self.after is not None:
                await self.after(call)
            return await _forwarded(request, answer)


async def _forwarded(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    kept = {name: value for name, value in answer.headers.items() if name.title() not in _HOP_HEADERS}
    if "Content-Encoding" in answer.headers:
        kept["Content-Encoding"] = answer.headers["Content-Encoding"]
    response = web.StreamResponse(status=answer.status, headers=kept)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response


def call_of(method: str, path: str, query: Any) -> Call | None:
    """A request to a resource in the words of RBAC; None for discovery and health."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, rest = "", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = parts[1], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    resource = "/".join([rest[0], *rest[2:]])
    if method == "GET":
        verb = "watch" if query.get("watch") in ("1", "true") else "get" if name else "list"
    else:
        verb = _VERBS[method]
    return Call(group, resource, verb, namespace, name)
