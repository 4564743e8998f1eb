"""Makes the objects of one service what they should be, with no request for those that are.

What we asked for and what the server made of it are remembered as two digests. As long as the manifest and the
fields of the live object that we own (see owned_fields.py) still have them, there is nothing to do, whatever
others changed. An operator that just started remembers nothing and applies each object once, which the server
drops where it changes nothing. Digests kept in the objects would save that, and would hide an edit that keeps them.
"""

import asyncio
import hashlib
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from nightjar_operator.cluster import Cluster
from nightjar_operator.cluster_errors import NameTakenError, RefusedError, UnavailableError
from nightjar_operator.kinds import DEPLOYMENT, SERVICE_LABEL, Kind, kind_of
from nightjar_operator.manifests import Owner
from nightjar_operator.owned_fields import fingerprint
from nightjar_operator.store import Child, Key, Store, child

Json = dict[str, Any]


@dataclass(frozen=True)
class _Applied:
    manifest: str
    """Digest of what we asked for."""
    fingerprint: str
    """Of the fields we own in what the server made of it."""


class Applier:
    """Remembers what it applied; several services at once, one call at a time for each."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._applied: dict[Key, dict[tuple[Kind, str], _Applied]] = {}

    async def apply(self, owner: Owner, manifests: list[Json]) -> list[RefusedError]:
        """Apply what differs, delete what is no longer wanted; gives what the server refused, the rest is done.

        UnavailableError when the rest has to wait.
        """
        refused: list[RefusedError] = []
        # A pod template points at the ConfigMap, which is to be there first.
        ordered = sorted(manifests, key=lambda manifest: kind_of(manifest) == DEPLOYMENT)
        due = [manifest for manifest in ordered if not self._is_applied(owner, manifest)]
        # Reads need not wait for each other; a busy server answers each late.
        foreign = await asyncio.gather(*(self._refuse_foreign(owner, each) for each in due), return_exceptions=True)
        for manifest, refusal in zip(due, foreign, strict=True):
            try:
                if refusal is not None:
                    raise refusal
                await self._one(owner, manifest)
            except RefusedError as error:
                refused.append(error)
        for gone in unwanted(owner, manifests, list(self._children(owner).values())):
            await self._cluster.delete(gone.kind, owner.namespace, gone.name, gone.uid)
            self._memory(owner).pop((gone.kind, gone.name), None)
        return refused

    def forget(self, key: Key) -> None:
        """The service is gone; its children go by their owner references."""
        self._applied.pop(key, None)

    def _is_applied(self, owner: Owner, manifest: Json) -> bool:
        there = kind_of(manifest), manifest["metadata"]["name"]
        known = self._children(owner).get(there)
        return known is not None and self._memory(owner).get(there) == _Applied(_digest(manifest), known.fingerprint)

    async def _one(self, owner: Owner, manifest: Json) -> None:
        kind, name = kind_of(manifest), manifest["metadata"]["name"]
        known = self._children(owner).get((kind, name))
        made = await self._applied_or_merged(kind, manifest, known)
        if made is None:
            raise RefusedError(
                f"{kind.name} {name}: a cluster that knows {kind.api_version} is required, found none;"
                f" install its definition, or leave out what asks for it",
                HTTPStatus.NOT_FOUND,
            )
        self._store.observe(kind, made)
        self._memory(owner)[kind, name] = _Applied(_digest(manifest), fingerprint(made))

    async def _applied_or_merged(self, kind: Kind, manifest: Json, known: Child | None) -> Json | None:
        try:
            return await self._cluster.apply(kind, manifest)
        except RefusedError as error:
            if known is None or error.code != HTTPStatus.UNPROCESSABLE_ENTITY:
                raise
        # Somebody changed the key of a list's item, a port's number say: to the server theirs is another item,
        # which applying leaves beside ours, and the two can exclude each other. So the lists are set once as a whole.
        await self._cluster.merge(kind, manifest)
        return await self._cluster.apply(kind, manifest)

    async def _refuse_foreign(self, owner: Owner, manifest: Json) -> None:
        """Force wins every conflict, so it is never used on an object that is somebody else's."""
        kind, name = kind_of(manifest), manifest["metadata"]["name"]
        known = self._children(owner).get((kind, name))
        if known is None:
            # Not among the labelled ones; it may be there all the same.
            found = await self._cluster.get(kind, owner.namespace, name)
            if found is None:
                return
            known = child(kind, found)
            if known.controller != owner.uid and found["metadata"].get("labels", {}).get(SERVICE_LABEL) == owner.name:
                raise UnavailableError(f"{kind.name} {name} of a deleted service of this name is still there")
        if known.controller != owner.uid:
            raise NameTakenError(
                f"{kind.name} {name}: a name that is free is required, found one that this NightjarService does not"
                f" own; delete or rename that {kind.name}, or rename the NightjarService",
                HTTPStatus.CONFLICT,
            )

    def _children(self, owner: Owner) -> dict[tuple[Kind, str], Child]:
        return self._store.get((owner.namespace, owner.name)).children

    def _memory(self, owner: Owner) -> dict[tuple[Kind, str], _Applied]:
        return self._applied.setdefault((owner.namespace, owner.name), {})


def unwanted(owner: Owner, manifests: list[Json], children: list[Child]) -> list[Child]:
    """Children of this very service that the spec does not ask for any more."""
    wanted = {(kind_of(manifest), manifest["metadata"]["name"]) for manifest in manifests}
    return [
        child
        for child in children
        if child.controller == owner.uid and not child.leaving and (child.kind, child.name) not in wanted
    ]


def _digest(manifest: Json) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
