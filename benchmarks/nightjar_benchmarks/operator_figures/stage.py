"""An operator in a process of its own, between a counting proxy and stand-in sidecars."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from kubernetes.aio.client import ApiClient
from prometheus_client.parser import text_string_to_metric_families

from nightjar_benchmarks.operator_figures.api_proxy import ApiProxy, Call
from nightjar_benchmarks.operator_figures.cluster_side import eventually, install_definition, make_namespace, service
from nightjar_benchmarks.operator_figures.fake_sidecars import FakeSidecars, serving
from nightjar_benchmarks.ports import free_port
from nightjar_operator import connection
from nightjar_operator.cluster import Cluster
from nightjar_operator.kinds import NIGHTJAR_SERVICE

# The installed command would be another checkout's, where one is installed.
_COMMAND = "import typer; from nightjar_operator.command import operator; typer.run(operator)"
_STOP_SECONDS = 20


@dataclass(frozen=True)
class Stage:
    """Everything a measurement needs."""

    admin: Cluster
    proxy: ApiProxy
    sidecars: FakeSidecars
    namespace: str
    engine_port: int
    operator_pid: int
    metrics_url: str

    async def create(self, name: str, replicas: int = 2) -> None:
        engine = {"port": self.engine_port, "device": "cpu"}
        await self.admin.create(
            NIGHTJAR_SERVICE, self.namespace, service(self.namespace, name, replicas=replicas, engine=engine)
        )

    def writes(self) -> list[Call]:
        """Those to services and their objects; the Lease is the operator's own, whatever it serves."""
        return [call for call in self.proxy.writes() if call.resource != "leases"]

    async def metrics(self) -> Mapping[str, float]:
        """Samples of the operator, labels and all, as Prometheus writes them."""
        async with aiohttp.ClientSession(trust_env=False) as session, session.get(self.metrics_url) as answer:
            text = await answer.text()
        return {
            f"{sample.name}{''.join(f'[{value}]' for _, value in sorted(sample.labels.items()))}": sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def peak_mib(self) -> float:
        """Most memory that the operator's process ever had resident."""
        lines = Path(f"/proc/{self.operator_pid}/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


@asynccontextmanager
async def stage(root: Path, kubeconfig: Path) -> AsyncIterator[Stage]:
    sidecars, status_port, metrics_port = FakeSidecars(), free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="nj-operator-") as folder:
        async with (
            ApiClient(await connection.configuration(kubeconfig)) as client,
            ApiProxy(kubeconfig) as proxy,
            serving(sidecars, status_port),
        ):
            admin = Cluster(client, lambda _verb, _kind: None)
            await install_definition(admin, root)
            namespace = await make_namespace(admin)
            for_operator = proxy.kubeconfig(Path(folder) / "kubeconfig")
            async with _operator(for_operator, namespace, metrics_port) as pid:
                url = f"http://127.0.0.1:{metrics_port}"
                await eventually(lambda: _answers(f"{url}/readyz"), "the operator to be ready")
                yield Stage(admin, proxy, sidecars, namespace, status_port - 1, pid, f"{url}/metrics")


@asynccontextmanager
async def _operator(kubeconfig: Path, namespace: str, port: int) -> AsyncIterator[int]:
    options = {
        "--engine-image": "registry.invalid/engine:1",
        "--sidecar-image": "registry.invalid/sidecar:1",
        "--kubeconfig": str(kubeconfig),
        "--lease": f"{namespace}/nightjar-operator",
        "--host": "127.0.0.1",
        "--port": str(port),
        "--resync-seconds": "20",
    }
    arguments = [part for option in options.items() for part in option]
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _COMMAND, *arguments, env=dict(os.environ))
    try:
        yield process.pid
    finally:
        if process.returncode is None:
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession(trust_env=False) as session, session.get(url) as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False
