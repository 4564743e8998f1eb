"""The Kubernetes API as the operator uses it: dictionaries in and out, every request with a deadline."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp
from kubernetes.aio.client import ApiClient
from kubernetes.aio.dynamic import DynamicClient
from kubernetes.aio.dynamic.exceptions import DynamicApiError

from nightjar_operator.cluster_errors import ConflictError, ForbiddenError, RefusedError, UnavailableError
from nightjar_operator.kinds import MANAGER, Kind

Json = dict[str, Any]

_PAGE = 250
_MERGE = "application/merge-patch+json"
_TIMEOUT = aiohttp.ClientTimeout(total=15, sock_connect=5)
# Worth trying again without anybody changing anything.
_PASSING = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.GONE,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.UNAUTHORIZED,
}


@dataclass(frozen=True)
class Listing:
    """All objects of a kind at one moment."""

    items: list[Json]
    version: str
    """The resourceVersion of the moment."""


class Cluster:
    """All methods raise `UnavailableError` or `RefusedError`; objects that do not exist are None, not errors."""

    def __init__(self, client: ApiClient, on_write: Callable[[str, Kind], None]) -> None:
        # Resources come from our own table: the client's discovery costs requests and keeps its findings in a
        # shared temporary file.
        self._dynamic = DynamicClient(client)
        self._on_write = on_write

    async def list(self, kind: Kind, namespace: str | None, selector: str) -> Listing | None:
        """All objects that `selector` matches; None when the cluster has no such kind."""
        found: list[Json] = []
        more: str | None = None
        while True:
            page = await self._request(
                "get", _path(kind, namespace), label_selector=selector or None, limit=_PAGE, _continue=more
            )
            if page is None:
                return None
            # Items of a list lack what every object has.
            found += [{"apiVersion": kind.api_version, "kind": kind.name, **item} for item in page["items"]]
            more = page["metadata"].get("continue")
            if not more:
                return Listing(found, page["metadata"]["resourceVersion"])

    async def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        return await self._request("get", _path(kind, namespace, name))

    async def through_pod(self, namespace: str, name: str, port: int, path: str) -> Json | None:
        """What a pod's server answers, asked by way of the API server; None when the pod or the path is gone."""
        return await self._request("get", f"/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/{path}")

    async def create(self, kind: Kind, namespace: str | None, body: Json) -> Json | None:
        """None when the namespace is gone."""
        return await self._write("post", kind, _path(kind, namespace), body=body)

    async def replace(self, kind: Kind, namespace: str, name: str, body: Json) -> Json | None:
        """None when the object is gone; ConflictError when it is not of `body`'s resourceVersion any more."""
        return await self._write("put", kind, _path(kind, namespace, name), body=body)

    async def apply(self, kind: Kind, body: Json) -> Json | None:
        """Server-side apply. Our fields win over other managers'. None when the kind or the namespace is gone."""
        return await self._apply(kind, body, "")

    async def merge(self, kind: Kind, body: Json) -> Json | None:
        """Set what `body` has, lists as a whole, whoever set it before. None when the object is gone."""
        path = _path(kind, body["metadata"].get("namespace"), body["metadata"]["name"])
        return await self._write("patch", kind, path, body=body, content_type=_MERGE, field_manager=MANAGER)

    async def apply_status(self, kind: Kind, body: Json) -> Json | None:
        """Server-side apply of the subresource `status`. None when the object is gone."""
        return await self._apply(kind, body, "/status")

    async def annotate(self, kind: Kind, namespace: str, name: str, annotations: dict[str, str]) -> Json | None:
        """None when the object is gone."""
        body = {"metadata": {"annotations": annotations}}
        return await self._write("patch", kind, _path(kind, namespace, name), body=body, content_type=_MERGE)

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete the object of this uid; nothing happens when it is gone or another has its name."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        with suppress(ConflictError):
            await self._write("delete", kind, _path(kind, namespace, name), body=options)

    async def _apply(self, kind: Kind, body: Json, subresource: str) -> Json | None:
        path = _path(kind, body["metadata"].get("namespace"), body["metadata"]["name"]) + subresource
        return await self._write(
            "patch",
            kind,
            path,
            body=body,
            content_type="application/apply-patch+yaml",
            field_manager=MANAGER,
            force_conflicts="true",
        )

    async def _write(self, verb: str, kind: Kind, path: str, **options: Any) -> Json | None:
        answer = await self._request(verb, path, **options)
        self._on_write(verb, kind)
        return answer

    async def _request(self, verb: str, path: str, **options: Any) -> Json | None:
        try:
            answer: Json = await self._dynamic.request(
                verb, path, serializer=_as_it_is, _request_timeout=_TIMEOUT, **options
            )
        except DynamicApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise _translated(verb, path, error) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{verb.upper()} {path}: {error or type(error).__name__}") from error
        return answer


def _path(kind: Kind, namespace: str | None, name: str | None = None) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
    place = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{place}/{kind.plural}" + (f"/{name}" if name else "")


def _as_it_is(_client: DynamicClient, answer: Json) -> Json:
    return answer


def _translated(verb: str, path: str, error: DynamicApiError) -> UnavailableError | RefusedError:
    message = f"{verb.upper()} {path}: {error.summary()}"
    if error.status == HTTPStatus.CONFLICT:
        return ConflictError(message)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status in _PASSING:
        return UnavailableError(message)
    if error.status == HTTPStatus.FORBIDDEN:
        return ForbiddenError(message, error.status)
    return RefusedError(message, error.status)
