"""Whom `nightjar top` asks: one address, or the pods of a namespace by way of the Kubernetes API."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import aiohttp
from kubernetes.aio.client import ApiClient

from nightjar_api.errors import ConfigurationError
from nightjar_operator import connection
from nightjar_operator.cluster import Cluster
from nightjar_operator.cluster_errors import RefusedError, UnavailableError
from nightjar_operator.kinds import POD, SELECTOR
from nightjar_operator.pods import Pod, pod
from nightjar_operator.reports import MalformedReportError
from nightjar_operator.top.reading import reading
from nightjar_operator.top.view import Seen

_TIMEOUT = aiohttp.ClientTimeout(total=3)
_AT_ONCE = 32


class Source(Protocol):
    """Asked again and again; what does not answer is said in `Seen.silence`."""

    async def ask(self) -> Sequence[Seen]: ...


def base_url(address: str) -> str:
    """Where a sidecar serves, without a slash at the end; ConfigurationError for what is no address."""
    text = address if "://" in address else f"http://{address}"
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigurationError(f"ADDRESS: host:port or an http:// URL is required, found {address!r}")
    return text.rstrip("/").removesuffix("/status")


@dataclass(frozen=True)
class Address:
    """One sidecar that can be reached."""

    session: aiohttp.ClientSession
    url: str

    async def ask(self) -> Sequence[Seen]:
        name = self.url.partition("://")[2]
        try:
            async with self.session.get(f"{self.url}/status", raise_for_status=True) as answer:
                return [Seen(name, reading(await answer.json()))]
        except MalformedReportError as error:
            return [Seen(name, silence=str(error))]
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return [Seen(name, silence=str(error) or "it did not answer within 3 s")]


@dataclass(frozen=True)
class Namespace:
    """All pods of NightjarServices in a namespace, or one of them, through the API server's proxy."""

    cluster: Cluster
    name: str
    only: str | None

    async def ask(self) -> Sequence[Seen]:
        """ConfigurationError when the API does not let us see the pods."""
        try:
            listing = await self.cluster.list(POD, self.name, SELECTOR)
        except (RefusedError, UnavailableError) as error:
            raise ConfigurationError(f"--namespace: pods that may be listed are required: {error}") from error
        there = [pod(found) for found in listing.items] if listing else []
        asked = [each for each in there if self.only in (None, each.name)]
        limit = asyncio.Semaphore(_AT_ONCE)
        return await asyncio.gather(*(self._ask(each, limit) for each in asked))

    async def _ask(self, each: Pod, limit: asyncio.Semaphore) -> Seen:
        if each.leaving or each.status_port is None:
            return Seen(each.name, silence="it is ending" if each.leaving else "it has no sidecar: γ is not planned")
        try:
            async with limit:
                found = await self.cluster.through_pod(self.name, each.name, each.status_port, "status")
            return Seen(each.name, reading(found)) if found is not None else Seen(each.name, silence="it is gone")
        except (RefusedError, UnavailableError, MalformedReportError) as error:
            return Seen(each.name, silence=str(error))


@asynccontextmanager
async def address(where: str) -> AsyncIterator[Address]:
    # A local pod or a forwarded port is never behind the environment's proxy.
    async with aiohttp.ClientSession(timeout=_TIMEOUT, trust_env=False) as session:
        yield Address(session, base_url(where))


@asynccontextmanager
async def namespace(name: str, only: str | None, kubeconfig: Path | None) -> AsyncIterator[Namespace]:
    async with ApiClient(await connection.configuration(kubeconfig)) as client:
        yield Namespace(Cluster(client, lambda _verb, _kind: None), name, only)
