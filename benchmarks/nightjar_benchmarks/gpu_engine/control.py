"""The plugin's control plane, as a benchmark uses it."""

import json
import subprocess
import sys
from itertools import count

import grpc

from nightjar_api.engine.v1 import engine_pb2, engine_pb2_grpc


class Control:
    """Plans from here, reports through a process of their own (see `watcher`)."""

    def __init__(self, socket: str) -> None:
        channel = grpc.insecure_channel(f"unix:{socket}")
        self._stub = engine_pb2_grpc.EngineStub(channel)  # type: ignore[no-untyped-call]
        # Behind the plans of whoever planned before.
        self._versions = count(self.info().plan_version + 1)
        self._watcher = subprocess.Popen(
            [sys.executable, "-m", "nightjar_benchmarks.gpu_engine.watcher", socket],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._receive()

    def plan(self, segments: list[list[int]], hold: int) -> int:
        """The plan's version."""
        schedule = [engine_pb2.Segment(gamma=gamma, steps=steps) for gamma, steps in segments]
        bucket = engine_pb2.BucketPlan(max_batch=1, schedule=schedule, hold_gamma=hold)
        plan = engine_pb2.Plan(version=next(self._versions), ttl_ms=3_600_000, buckets=[bucket])
        self._stub.ApplyPlan(engine_pb2.ApplyPlanRequest(plan=plan), timeout=10)
        return int(plan.version)

    def info(self) -> engine_pb2.EngineInfo:
        """What the engine is; some of it from its first step on."""
        info: engine_pb2.EngineInfo = self._stub.GetInfo(engine_pb2.GetInfoRequest(), timeout=10)
        return info

    def expand(self) -> engine_pb2.ElasticProgress:
        """How it ended; grpc.RpcError when it is refused."""
        progress: list[engine_pb2.ElasticProgress] = list(self._stub.Expand(engine_pb2.ExpandRequest(), timeout=60))
        return progress[-1]

    def squeeze(self) -> engine_pb2.ElasticProgress:
        """Likewise."""
        progress: list[engine_pb2.ElasticProgress] = list(self._stub.Squeeze(engine_pb2.SqueezeRequest(), timeout=60))
        return progress[-1]

    def take(self) -> list[list[int]]:
        """A row of `watcher.STEP_FIELDS` for each step since the last call."""
        print(file=self._watcher.stdin, flush=True)
        rows: list[list[int]] = self._receive()
        return rows

    def close(self) -> None:
        """The watcher ends when nobody asks any more."""
        self._watcher.communicate(timeout=30)

    def _receive(self) -> list[list[int]]:
        line = self._watcher.stdout.readline() if self._watcher.stdout is not None else ""
        if not line:
            raise RuntimeError("the reader of step reports ended; what it says is above")
        received: list[list[int]] = json.loads(line)
        return received
