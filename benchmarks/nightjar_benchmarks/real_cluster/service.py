"""A NightjarService in the cluster, as a person and a client see it."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx

from nightjar_benchmarks.real_cluster import objects
from nightjar_benchmarks.real_cluster.node import NodeCluster

Json = dict[str, Any]
T = TypeVar("T")
_POLL_SECONDS = 0.2
# On a busy node a sidecar may not be scheduled for seconds.
_STATUS_SECONDS = 30
# With two endpoints, one of them gone, so many in a row never reach the other by luck.
_CONNECTIONS = 20
_SELECTOR = "nightjar.dev/service="


def eventually(check: Callable[[], T | None], what: str, seconds: float) -> T:
    """What `check` gives once that is true; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} within {seconds:g} s is required, it was not so")
        time.sleep(_POLL_SECONDS)
    return found


@dataclass(frozen=True)
class Running:
    """One container of a pod, as the kubelet tells of it."""

    pod: str
    name: str
    id: str
    """Of the runtime's; empty before there is one."""
    restarts: int


class Service:
    """Of the name `name`, in the namespace of the tests."""

    def __init__(self, cluster: NodeCluster, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        return self._cluster.kubectl("--namespace", objects.NAMESPACE, *arguments, given=given)

    def apply(self, **spec: Any) -> None:
        """A document with these fields beside those every test needs, as `kubectl apply` takes it."""
        self.kubectl("apply", "--filename", "-", given=json.dumps(objects.service(self.name, **spec)))

    def change(self, **spec: Any) -> None:
        """Fields of the spec, as `kubectl patch --type=merge` changes them."""
        self.kubectl("patch", "njs", self.name, "--type=merge", "--patch", json.dumps({"spec": spec}))

    def found(self) -> Json:
        return self._json("get", "njs", self.name)

    def holds(self, condition: str) -> bool:
        """Whether it is true of the newest spec."""
        found = self.found()
        return any(
            one["type"] == condition
            and one["status"] == "True"
            and one["observedGeneration"] == found["metadata"]["generation"]
            for one in found.get("status", {}).get("conditions", [])
        )

    def pods(self) -> list[Json]:
        """Those that stay."""
        items = self._json("get", "pods", "--selector", f"{_SELECTOR}{self.name}")["items"]
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def ready_pods(self) -> list[Json]:
        return [pod for pod in self.pods() if _is_ready(pod)]

    def containers(self) -> list[Running]:
        """Those of all pods, in the order of the pods' names."""
        return [
            Running(pod["metadata"]["name"], one["name"], _runtime_id(one), one["restartCount"])
            for pod in sorted(self.pods(), key=lambda pod: str(pod["metadata"]["name"]))
            for kind in ("initContainerStatuses", "containerStatuses")
            for one in pod["status"].get(kind, [])
        ]

    def sidecars(self) -> list[Json]:
        """What `/status` of each pod says; httpx.HTTPError when one does not answer."""
        return [
            httpx.get(f"http://{pod['status']['podIP']}:8001/status", timeout=_STATUS_SECONDS, trust_env=False)
            .raise_for_status()
            .json()
            for pod in self.pods()
        ]

    def url(self) -> str:
        """Of the OpenAI API, through the Service."""
        return f"http://{self._json('get', 'service', self.name)['spec']['clusterIP']}/v1"

    def is_reached(self) -> bool:
        """Whether every connection finds a server: the Service's rules follow a pod's condition a moment later."""
        url = f"{self.url()}/models"
        try:
            for _ in range(_CONNECTIONS):
                httpx.get(url, timeout=_STATUS_SECONDS, trust_env=False).raise_for_status()
        except httpx.HTTPError:
            return False
        return True

    def _json(self, *arguments: str) -> Json:
        return self._cluster.json("--namespace", objects.NAMESPACE, *arguments)


def _runtime_id(status: Json) -> str:
    return str(status.get("containerID", "")).rpartition("//")[2]


def _is_ready(pod: Json) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))
