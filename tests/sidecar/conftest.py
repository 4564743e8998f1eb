"""A toy world to learn in, and a double of the engine's control plane behind a real gRPC server."""

import asyncio
import math
from collections import deque
from contextlib import asynccontextmanager
from random import Random

import grpc
import pytest

from nightjar_api.engine.v1 import engine_pb2, engine_pb2_grpc
from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Context

MS = 1_000_000


class Toy:
    """Step times flat up to a knee of verified tokens and linear after it, noisy, with rare spikes.

    A step catches up `catch_up_limit` tokens, one request after the other; who is not caught up has no drafts.
    """

    def __init__(self, seed, *, acceptance=0.75, knee=32, catch_up_per_token=2e-5, catch_up_limit=math.inf, noise=0.04):
        self.rng = Random(seed)
        self.acceptance = acceptance
        self.knee = knee
        self.noise = noise
        self.catch_up_per_token = catch_up_per_token
        self.catch_up_limit = catch_up_limit
        self.slower = 1.0
        self.now_ns = 0
        self.steps = 0
        self.previous = 0
        self.stale = 0
        self.stale_at_return = 0
        self.tokens = 0

    def times(self, batch, gamma, drafting=None):
        """Expected draft and forward seconds."""
        drafting = batch if drafting is None else drafting
        forward = 10e-3 + 0.2e-3 * max(0, batch + drafting * gamma - self.knee)
        return self.slower * gamma * (1e-3 + 2e-5 * drafting), self.slower * forward

    def cost(self, batch, gamma):
        """Expected seconds per token of one request."""
        return sum(self.times(batch, gamma)) / sum(self.acceptance**i for i in range(gamma + 1))

    def best(self, batch, gamma_max):
        return min(range(gamma_max + 1), key=lambda gamma: self.cost(batch, gamma))

    def context(self, batch):
        steps = math.ceil(self.stale / self.catch_up_limit)
        return Context(batch, self.previous, self.stale * self.catch_up_per_token, steps, self.catch_up_per_token)

    def run(self, batch, gamma):
        self.stale = min(self.stale, 300 * batch)
        if self.previous == 0:
            self.stale_at_return = self.stale
        caught_up = min(self.stale, self.catch_up_limit) if gamma else 0
        self.stale += -caught_up if gamma else batch
        drafting = round(batch * (1 - self.stale / self.stale_at_return)) if gamma and self.stale else batch
        draft, forward = (self._noisy(seconds) for seconds in self.times(batch, gamma, drafting))
        catch_up = caught_up * self.catch_up_per_token
        accepted = self._accepted(drafting, gamma)
        self.steps += 1
        self.now_ns += round(1e9 * (draft + forward + catch_up))
        self.previous = gamma
        self.tokens += batch + sum(accepted)
        return Round(
            step=self.steps,
            time_ns=self.now_ns,
            batch=batch,
            gamma=gamma,
            draft_seconds=draft,
            forward_seconds=forward,
            tokens=batch + sum(accepted),
            verified=(drafting,) * gamma,
            accepted=accepted,
            catch_up_seconds=catch_up,
            host_seconds=0.0,
        )

    def play(self, policy, batch, rounds):
        """The lengths that `policy` chose for `rounds` rounds of `batch` requests."""
        chosen = []
        for _ in range(rounds):
            gamma = policy.predict(self.context(batch)).gamma
            policy.learn(self.run(batch, gamma))
            chosen.append(gamma)
        return chosen

    def _noisy(self, seconds):
        spike = 6 if self.rng.random() < 0.01 else 1
        return seconds * math.exp(self.rng.gauss(0, self.noise)) * spike

    def _accepted(self, batch, gamma):
        counts = [0] * gamma
        for _ in range(batch):
            for position in range(gamma):
                if self.rng.random() >= self.acceptance:
                    break
                counts[position] += 1
        return tuple(counts)


class EngineDouble(engine_pb2_grpc.EngineServicer):
    """Stands for the engine: obeys plans step by step, when the test says so, and reports each step."""

    def __init__(self, **info):
        defaults = {"engine_id": "first", "vllm_version": "0.32.0", "target_model": "t", "draft_model": "d"}
        self.info = engine_pb2.EngineInfo(**(defaults | {"gamma_max": 3, "max_batch": 64} | info))
        self.plans = []
        self.streams = []
        self.steps = 0
        self.refusal = None
        self.changes = []
        self.refused_changes = set()
        self._changed = asyncio.Condition()
        self._schedules = []
        self._drafted = (0, 0)

    async def GetInfo(self, request, context):  # noqa: N802
        return self.info

    async def WatchSteps(self, request, context):  # noqa: N802
        queue = asyncio.Queue()
        self.streams.append(queue)
        await self._notify()
        while True:
            yield await queue.get()

    async def ApplyPlan(self, request, context):  # noqa: N802
        if self.refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        if request.plan.version <= self.info.plan_version:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not newer")
        self.info.plan_version = request.plan.version
        self.plans.append(request.plan)
        self._schedules = [deque(bucket.schedule) for bucket in request.plan.buckets]
        await self._notify()
        return engine_pb2.ApplyPlanResponse(version=request.plan.version)

    async def Expand(self, request, context):  # noqa: N802
        async for progress in self._change("expand", engine_pb2.DRAFT_RESIDENCY_AWAY, context):
            yield progress

    async def Squeeze(self, request, context):  # noqa: N802
        async for progress in self._change("squeeze", engine_pb2.DRAFT_RESIDENCY_ON_DEVICE, context):
            yield progress

    async def _change(self, name, residency, context):
        """As the engine: refused while a length is planned, or while a test says so."""
        longest = max(bucket.hold_gamma for bucket in self.plans[-1].buckets)
        if longest or name in self.refused_changes:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{name}: not now, γ {longest}")
        self.changes.append(name)
        self.info.draft_residency = residency
        yield engine_pb2.ElasticProgress(draft_residency=engine_pb2.DRAFT_RESIDENCY_LEAVING)
        yield engine_pb2.ElasticProgress(
            draft_residency=residency, blocks=130, moved_blocks=5, moved_bytes=30 << 20, elapsed_ns=7 * MS
        )
        await self._notify()

    async def until(self, condition):
        """Wait until `condition(self)` holds after some call."""
        async with asyncio.timeout(120), self._changed:
            await self._changed.wait_for(lambda: condition(self))

    def step(self, batch=4, **report):
        """One step of `batch` decoding requests, all drafts accepted; fields of its report may be given."""
        self.steps += 1
        gamma = self._next_gamma(batch)
        drafted_at, verified = self._drafted
        positions = [batch] * verified
        values = {
            "step": self.steps,
            "time_ns": self.steps * 20 * MS,
            "decode_batch": batch,
            "gamma_verified": verified,
            "drafted_at_step": drafted_at if verified else 0,
            "gamma_drafted": gamma,
            "emitted_tokens": batch * (1 + verified),
            "verified_by_position": positions,
            "accepted_by_position": positions,
            "forward_ns": 10 * MS,
            "draft_ns": gamma * MS,
            "running": batch,
            "total_blocks": 100,
            "free_blocks": 90,
            "plan_version": self.info.plan_version,
            "draft_residency": engine_pb2.DRAFT_RESIDENCY_ON_DEVICE,
        }
        self._drafted = (self.steps, gamma)
        self.send(engine_pb2.StepReport(**(values | report)))
        return gamma

    def send(self, *reports, dropped=0):
        self.streams[-1].put_nowait(engine_pb2.StepBatch(reports=reports, dropped=dropped))

    def _next_gamma(self, batch):
        if not self.plans:
            return 0
        buckets = self.plans[-1].buckets
        index = next((i for i, b in enumerate(buckets) if batch <= b.max_batch), len(buckets) - 1)
        schedule = self._schedules[index]
        if not schedule:
            return buckets[index].hold_gamma
        segment = schedule[0]
        segment.steps -= 1
        if segment.steps == 0:
            schedule.popleft()
        return segment.gamma

    async def _notify(self):
        async with self._changed:
            self._changed.notify_all()


@pytest.fixture
def toy():
    return Toy


@pytest.fixture
def engine_double():
    return EngineDouble


@pytest.fixture
def serving():
    """`async with serving(double, socket):` serves the double, and takes the socket away like a dead process."""

    @asynccontextmanager
    async def serve(double, socket):
        server = grpc.aio.server()
        engine_pb2_grpc.add_EngineServicer_to_server(double, server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield double
        finally:
            await server.stop(grace=None)
            socket.unlink(missing_ok=True)

    return serve
