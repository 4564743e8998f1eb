"""An engine of a pod without its sidecar: the benchmark plans in its place."""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from nightjar_api.engine.v1.engine_pb2 import ApplyPlanRequest, BucketPlan, Plan, StepReport, WatchStepsRequest
from nightjar_api.engine.v1.engine_pb2_grpc import EngineStub
from nightjar_api.service import NightjarService
from nightjar_operator import pod
from nightjar_operator.errors import NotReadyError
from nightjar_operator.local import programs, readiness
from nightjar_operator.local.process import Process

_READY_SECONDS = 300.0
_CALL_SECONDS = 10.0
_PLAN_TTL_MS = 3_600_000


@dataclass
class BareEngine:
    """A serving engine; `reports` grows by every step while the context is open."""

    openai_url: str
    model: str
    stub: EngineStub
    reports: list[StepReport] = field(default_factory=list)
    dropped: int = 0
    _version: int = 0

    def plan(self, bucket: BucketPlan) -> None:
        """Replace the plan by one bucket, for all batches, that does not expire."""
        self._version += 1
        plan = Plan(version=self._version, ttl_ms=_PLAN_TTL_MS, buckets=[bucket])
        self.stub.ApplyPlan(ApplyPlanRequest(plan=plan), timeout=_CALL_SECONDS)


@contextmanager
def bare_engine(service: NightjarService, workdir: Path) -> Iterator[BareEngine]:
    """NotReadyError when it does not start."""
    workdir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nightjar-") as folder:
        socket = Path(folder) / "engine.sock"
        layout = pod.Layout(socket, workdir / "settings.json", service.spec.engine.port + 1)
        container = pod.build(service, layout).engine
        run = programs.installed()
        argv, env = programs.argv(container, run), programs.environment(container, run, os.environ)
        process = Process("engine", argv, env, workdir / "engine.log")
        try:
            _await_ready(process, container.readiness)
            with grpc.insecure_channel(f"unix:{socket}") as channel:
                stub = EngineStub(channel)  # type: ignore[no-untyped-call]
                url = f"http://127.0.0.1:{service.spec.engine.port}/v1"
                with _reading(BareEngine(url, pod.served_name(service), stub)) as engine:
                    yield engine
        finally:
            process.terminate(grace_seconds=30)


@contextmanager
def _reading(engine: BareEngine) -> Iterator[BareEngine]:
    stream = engine.stub.WatchSteps(WatchStepsRequest())

    def read() -> None:
        with suppress(grpc.RpcError):  # how a cancelled stream ends
            for batch in stream:
                engine.reports.extend(batch.reports)
                engine.dropped = batch.dropped

    reader = threading.Thread(target=read)
    reader.start()
    try:
        stream.initial_metadata()  # comes once the engine keeps reports; steps before that are lost
        yield engine
    finally:
        stream.cancel()
        reader.join()


def _await_ready(process: Process, probe: pod.Probe) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not readiness.answers(probe):
        code = process.exit_code()
        if code is not None:
            raise NotReadyError(readiness.exited(process, code, "before it was ready"), code)
        if time.monotonic() > deadline:
            raise NotReadyError(readiness.late(process, probe, _READY_SECONDS), None)
        time.sleep(0.1)
