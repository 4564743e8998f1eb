"""The other side of an operator under test: an administrator who makes services, and looks at what came of it."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from nightjar_operator.cluster import Cluster
from nightjar_operator.cluster_errors import ConflictError
from nightjar_operator.kinds import CHILDREN, NIGHTJAR_SERVICE, POD, SELECTOR, Kind

Json = dict[str, Any]
T = TypeVar("T")

NAMESPACE = Kind("", "v1", "Namespace", "namespaces")
DEFINITION = Kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions")
_POLL_SECONDS = 0.05


async def eventually(check: Callable[[], Awaitable[T | None]], what: str, seconds: float = 300) -> T:
    """What `check` gives once that is true; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    found = await check()
    while not found:
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} within {seconds:g} s is required, it was not so")
        await asyncio.sleep(_POLL_SECONDS)
        found = await check()
    return found


async def install_definition(admin: Cluster, root: Path) -> None:
    """The definition of NightjarService, from the repository at `root`, until the API server serves it."""
    text = (root / "crds" / "nightjarservices.nightjar.dev.yaml").read_text(encoding="utf-8")
    await admin.apply(DEFINITION, yaml.safe_load(text))
    await eventually(lambda: admin.list(NIGHTJAR_SERVICE, None, ""), "NightjarService to be served")


async def make_namespace(admin: Cluster) -> str:
    """A fresh namespace, with the objects Kubernetes puts into each."""
    name = f"nj-{secrets.token_hex(4)}"
    await admin.create(NAMESPACE, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


def service(namespace: str, name: str, **spec: Any) -> Json:
    """A NightjarService whose pods no real node takes, so that they cost nothing wherever this runs."""
    defaults: Json = {
        "target": {"source": {"path": "/models/target"}},
        "draft": {"source": {"path": "/models/draft"}, "numSpeculativeTokens": 3},
    }
    return {
        "apiVersion": NIGHTJAR_SERVICE.api_version,
        "kind": NIGHTJAR_SERVICE.name,
        "metadata": {"namespace": namespace, "name": name},
        "spec": defaults | spec,
    }


async def children(admin: Cluster, namespace: str) -> dict[tuple[str, str], Json]:
    """All objects of the operator in `namespace` by kind and name, pods aside."""
    found = {}
    for kind in CHILDREN:
        listing = await admin.list(kind, namespace, SELECTOR)
        for item in listing.items if listing is not None else []:
            found[kind.name, item["metadata"]["name"]] = item
    return found


async def pods(admin: Cluster, namespace: str) -> list[Json]:
    """Those of the operator's that stay."""
    listing = await admin.list(POD, namespace, SELECTOR)
    items = listing.items if listing is not None else []
    return [item for item in items if "deletionTimestamp" not in item["metadata"]]


async def condition(admin: Cluster, namespace: str, name: str, kind: str) -> tuple[str, str] | None:
    """Status and reason of a condition; None before it is answered."""
    found = await admin.get(NIGHTJAR_SERVICE, namespace, name)
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return next(((one["status"], one["reason"]) for one in conditions if one["type"] == kind), None)


async def edited(
    admin: Cluster, namespace: str, name: str, edit: Callable[[Json], None], kind: Kind = NIGHTJAR_SERVICE
) -> None:
    """Change an object as a person would with `kubectl edit`: again, if somebody was faster."""

    async def attempt() -> bool:
        found = await admin.get(kind, namespace, name)
        if found is None:
            raise AssertionError(f"{kind.name} {name} is required, it is gone")
        edit(found)
        try:
            await admin.replace(kind, namespace, name, found)
        except ConflictError:
            return False
        return True

    await eventually(attempt, f"an edit of {name}")
