"""The cluster as last seen: services, their children, their pods, and what the pods' sidecars said.

Fed by watches, listings, polls and the answers to our own writes; only the newest version of an object counts.
Children are kept as little as deciding needs, so that thousands of them fit.
"""

from dataclasses import dataclass, field
from typing import Any

from nightjar_operator.cluster import Listing
from nightjar_operator.kinds import DEPLOYMENT, NIGHTJAR_SERVICE, POD, SERVICE_LABEL, Kind
from nightjar_operator.owned_fields import fingerprint
from nightjar_operator.pods import Pod, pod
from nightjar_operator.reports import Report

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name of a NightjarService."""
Place = tuple[Kind, str, str]
"""Kind, namespace and name of any object."""

_REMEMBERED_UIDS = 4096


@dataclass(frozen=True)
class Child:
    """An object that the operator made, or one that carries its labels."""

    kind: Kind
    name: str
    uid: str
    controller: str | None
    """uid of the owner that controls it."""
    leaving: bool
    fingerprint: str
    state: Json | None
    """Generation, spec.replicas and status of a Deployment; None for others."""


@dataclass
class Seen:
    """Everything about one NightjarService."""

    service: Json | None = None
    children: dict[tuple[Kind, str], Child] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    """By the pod's uid."""
    wanted_revision: str | None = None
    """Names the settings that every pod should obey."""


@dataclass(frozen=True)
class _Version:
    uid: str
    number: int
    key: Key


class Store:
    """Lives in one event loop; `observe` and `forget` tell whose picture changed.

    Resource versions are compared as numbers, which etcd always made them and the API promises since 1.35.
    """

    def __init__(self) -> None:
        self._seen: dict[Key, Seen] = {}
        self._versions: dict[Place, _Version] = {}
        self._gone: dict[str, int] = {}
        """By uid, the last resource version of what is gone."""

    def services(self) -> list[Key]:
        """Every service there is."""
        return [key for key, seen in self._seen.items() if seen.service is not None]

    def get(self, key: Key) -> Seen:
        """Empty for one that was never seen; not to be changed."""
        return self._seen.get(key) or Seen()

    def observe(self, kind: Kind, found: Json) -> Key | None:
        """Take an object in, unless a newer version of it is known; None when nothing changed."""
        key = key_of(kind, found)
        if key is None:
            return None
        metadata = found["metadata"]
        place = (kind, metadata["namespace"], metadata["name"])
        version = _Version(metadata["uid"], int(metadata["resourceVersion"]), key)
        known = self._versions.get(place)
        newest = max(self._gone.get(version.uid, 0), known.number if known is not None else 0)
        if version.number <= newest:
            return None
        if known is not None and (known.key, known.uid) != (key, version.uid):
            self._drop(place, known)
        self._versions[place] = version
        _put(self._seen.setdefault(key, Seen()), kind, found)
        return key

    def forget(self, kind: Kind, found: Json) -> Key | None:
        """An object is gone; None when it was not known, or another of its name was made meanwhile."""
        metadata = found["metadata"]
        # A listing that was under way may still show it. One that only lost its labels may come back.
        self._gone[metadata["uid"]] = int(metadata["resourceVersion"])
        if len(self._gone) > _REMEMBERED_UIDS:
            self._gone.pop(next(iter(self._gone)))
        place = (kind, metadata["namespace"], metadata["name"])
        known = self._versions.get(place)
        if known is None or known.uid != metadata["uid"]:
            return None
        return self._drop(place, known)

    def replace(self, kind: Kind, listing: Listing, namespace: str | None) -> None:
        """Take in a complete listing of a namespace, or of all: what it lacks and is no newer is gone."""
        there: set[Place] = set()
        for found in listing.items:
            there.add((kind, found["metadata"]["namespace"], found["metadata"]["name"]))
            self.observe(kind, found)
        for place, known in list(self._versions.items()):
            missing = place[0] == kind and place not in there and namespace in (None, place[1])
            if missing and known.number <= int(listing.version):
                self._drop(place, known)

    def report(self, key: Key, uid: str, report: Report) -> bool:
        """Take in what a pod's sidecar said; False when it said the same before, or the pod is gone."""
        seen = self.get(key)
        if all(known.uid != uid for known in seen.pods.values()) or seen.reports.get(uid) == report:
            return False
        seen.reports[uid] = report
        return True

    def want(self, key: Key, revision: str | None) -> None:
        """Say which settings the pods of a service should obey; None for a service without sidecars."""
        if key in self._seen:
            self._seen[key].wanted_revision = revision

    def _drop(self, place: Place, known: _Version) -> Key:
        del self._versions[place]
        seen = self._seen[known.key]
        _remove(seen, place[0], place[2])
        if seen.service is None and not seen.children and not seen.pods:
            del self._seen[known.key]
        return known.key


def key_of(kind: Kind, found: Json) -> Key | None:
    """Whose picture an object belongs to; None for a child that has lost its label."""
    metadata = found["metadata"]
    name = metadata["name"] if kind == NIGHTJAR_SERVICE else metadata.get("labels", {}).get(SERVICE_LABEL)
    return None if name is None else (metadata["namespace"], name)


def child(kind: Kind, found: Json) -> Child:
    metadata = found["metadata"]
    owners = metadata.get("ownerReferences", [])
    return Child(
        kind=kind,
        name=metadata["name"],
        uid=metadata["uid"],
        controller=next((owner["uid"] for owner in owners if owner.get("controller")), None),
        leaving="deletionTimestamp" in metadata,
        fingerprint=fingerprint(found),
        state=_deployment_state(found) if kind == DEPLOYMENT else None,
    )


def _put(seen: Seen, kind: Kind, found: Json) -> None:
    name = found["metadata"]["name"]
    if kind == NIGHTJAR_SERVICE:
        seen.service = _without_bookkeeping(found)
    elif kind == POD:
        seen.pods[name] = pod(found)
    else:
        seen.children[kind, name] = child(kind, found)


def _remove(seen: Seen, kind: Kind, name: str) -> None:
    if kind == NIGHTJAR_SERVICE:
        seen.service = None
    elif kind == POD:
        gone = seen.pods.pop(name)
        seen.reports.pop(gone.uid, None)
    else:
        seen.children.pop((kind, name))


def _without_bookkeeping(found: Json) -> Json:
    metadata = {name: value for name, value in found["metadata"].items() if name != "managedFields"}
    return {**found, "metadata": metadata}


def _deployment_state(found: Json) -> Json:
    return {
        "generation": found["metadata"].get("generation", 0),
        "replicas": found["spec"].get("replicas", 1),
        "status": found.get("status", {}),
    }
