"""The operator against a real API server, with the permissions it will have and no others."""

import asyncio
import itertools
import secrets
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from kubernetes.aio.client import ApiClient

from nightjar_benchmarks.operator_figures.api_proxy import ApiProxy
from nightjar_benchmarks.operator_figures.cluster_side import (
    children,
    condition,
    edited,
    eventually,
    install_definition,
    make_namespace,
    pods,
    service,
)
from nightjar_benchmarks.operator_figures.fake_sidecars import FakeSidecars, serving
from nightjar_operator import connection, lease, process
from nightjar_operator.cluster import Cluster
from nightjar_operator.kinds import NIGHTJAR_SERVICE, Kind
from nightjar_operator.manifests import Images
from nightjar_operator.settings import Settings

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "operator" / "nightjar_operator" / "rbac.yaml").read_text())
ADDRESSES = itertools.count(1)
IMAGES = Images(engine="registry.invalid/engine:1", sidecar="registry.invalid/sidecar:1")

ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")
ROLE = Kind("rbac.authorization.k8s.io", "v1", "Role", "roles")
BINDING = Kind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


class World:
    """A namespace, an operator that works only there, and an administrator."""

    def __init__(self, plane, admin, proxy, namespace, kubeconfig):
        self.plane = plane
        self.admin = admin
        self.proxy = proxy
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.operators = []

    def settings(self, **changes):
        values = {
            "images": IMAGES,
            "namespaces": (self.namespace,),
            "kubeconfig": self.kubeconfig,
            "host": "127.0.0.1",
            "port": 0,
            "poll_seconds": 1.0,
            "identity": "test-operator",
        }
        return Settings(**values | changes)

    def start(self, **changes):
        """An operator in this event loop; gives what ends it."""
        stop = asyncio.Event()
        task = asyncio.create_task(process.run(self.settings(**changes), stop))
        self.operators.append((task, stop))
        return stop

    async def kill(self):
        """End all operators without letting them finish anything."""
        for task, _ in self.operators:
            task.cancel()
        await asyncio.gather(*(task for task, _ in self.operators), return_exceptions=True)
        self.operators.clear()

    async def stop(self):
        for _, stop in self.operators:
            stop.set()
        await asyncio.gather(*(task for task, _ in self.operators))
        self.operators.clear()

    async def create(self, name="chat", **spec):
        return await self.admin.create(NIGHTJAR_SERVICE, self.namespace, service(self.namespace, name, **spec))

    async def edit(self, edit, name="chat"):
        await edited(self.admin, self.namespace, name, edit)

    async def edit_object(self, kind, name, edit):
        await edited(self.admin, self.namespace, name, edit, kind)

    async def children(self):
        return await children(self.admin, self.namespace)

    async def status(self, name="chat"):
        return (await self.admin.get(NIGHTJAR_SERVICE, self.namespace, name)).get("status", {})

    async def pods(self):
        return await pods(self.admin, self.namespace)

    async def until(self, check, what):
        return await eventually(check, what)

    async def until_condition(self, kind, answer, name="chat"):
        async def holds():
            return await condition(self.admin, self.namespace, name, kind) == answer

        await eventually(holds, f"{kind} to be {answer}")

    async def until_children(self, count):
        async def there():
            found = await self.children()
            return found if len(found) == count else None

        return await eventually(there, f"{count} children")

    async def until_quiet(self):
        """Nothing was written for two sidecar rounds, and not because the API server took its time."""

        async def quiet():
            before = len(self.proxy.writes())
            for _ in range(40):
                if self.proxy.unanswered:
                    return False
                await asyncio.sleep(0.05)
            return len(self.proxy.writes()) == before

        await eventually(quiet, "no more writes")

    async def serve(self, pod, address):
        """Play the kubelet: the pod runs at `address` and is ready."""
        body = {
            "status": {
                "phase": "Running",
                "podIP": address,
                "podIPs": [{"ip": address}],
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": "True"},
                ],
            }
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}/status"
        await self.admin._request("patch", path, body=body, content_type="application/merge-patch+json")

    @asynccontextmanager
    async def sidecars(self, *pods):
        """The pods serve, and a stand-in answers for their sidecars."""
        sidecars = FakeSidecars()
        port = pods[0]["spec"]["initContainers"][0]["ports"][0]["containerPort"]
        async with serving(sidecars, port):
            for pod in pods:
                await self.serve(pod, f"127.30.0.{next(ADDRESSES)}")
            yield sidecars

    async def until_pods(self, count):
        async def there():
            found = await self.pods()
            return found if len(found) == count else None

        return await eventually(there, f"{count} pods")


@pytest.fixture
async def admin(control_plane):
    async with ApiClient(await connection.configuration(control_plane.kubeconfig)) as client:
        yield Cluster(client, lambda verb, kind: None)


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """An API server that has no processor for seconds costs no operator its lease."""
    monkeypatch.setattr(lease, "DURATION_SECONDS", 900)
    monkeypatch.setattr(lease, "_GIVE_UP_SECONDS", 600.0)


@pytest.fixture
async def world(control_plane, admin, tmp_path):
    await install_definition(admin, ROOT)
    namespace = await make_namespace(admin)
    async with ApiProxy(control_plane.kubeconfig) as proxy:
        kubeconfig = proxy.kubeconfig(tmp_path / "kubeconfig", await token_with(admin, namespace, RULES))
        world = World(control_plane, admin, proxy, namespace, kubeconfig)
        try:
            yield world
        finally:
            await world.kill()
            await admin._request("delete", f"/api/v1/namespaces/{namespace}")


@pytest.fixture
def rules():
    return RULES


async def token_with(admin, namespace, rules):
    """The token of a service account that may do what `rules` say in `namespace`, and nothing else."""
    name = f"operator-{secrets.token_hex(3)}"
    metadata = {"name": name, "namespace": namespace}
    await admin.create(ACCOUNT, namespace, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    role = {
        "apiVersion": ROLE.api_version,
        "kind": ROLE.name,
        "metadata": metadata,
        "rules": rules["rules"] + rules["lease"],
    }
    await admin.create(ROLE, namespace, role)
    binding = {
        "apiVersion": BINDING.api_version,
        "kind": BINDING.name,
        "metadata": metadata,
        "roleRef": {"apiGroup": ROLE.group, "kind": ROLE.name, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
    await admin.create(BINDING, namespace, binding)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    return (await admin._request("post", path, body=request))["status"]["token"]
