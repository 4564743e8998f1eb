"""The engine's gRPC service as seen from the sidecar; every failure is an EngineAway."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from nightjar_api.engine.v1.engine_pb2 import (
    ApplyPlanRequest,
    ElasticProgress,
    EngineInfo,
    ExpandRequest,
    GetInfoRequest,
    Plan,
    SqueezeRequest,
    StepBatch,
    WatchStepsRequest,
)
from nightjar_api.engine.v1.engine_pb2_grpc import EngineStub
from nightjar_sidecar.errors import ChangeRefused, EngineAway
from nightjar_sidecar.memory import Change

# The engine answers between two steps, and a step with a long prompt takes a while.
_CALL_SECONDS = 10.0
# A draft of many gigabytes comes back at the speed of the bus.
_CHANGE_SECONDS = 60.0
# Reports come so often, several at once where steps are short: each time costs a millisecond of processors in all, of
# which an engine on CPUs has none to spare.
_MAX_DELAY_MS = 50
_OPTIONS = (
    # A channel shares its sockets, and their backoff, with earlier channels unless told otherwise; the
    # caller has a backoff of its own.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class EngineClient:
    """One connection to the engine behind the unix socket `socket`; use as an async context manager."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS)
        self._stub = EngineStub(self._channel)  # type: ignore[no-untyped-call]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._channel.close(None)

    async def info(self) -> EngineInfo:
        with self._away_on_failure("GetInfo"):
            info: EngineInfo = await self._stub.GetInfo(GetInfoRequest(), timeout=_CALL_SECONDS)
            return info

    async def apply(self, plan: Plan) -> None:
        with self._away_on_failure("ApplyPlan"):
            await self._stub.ApplyPlan(ApplyPlanRequest(plan=plan), timeout=_CALL_SECONDS)

    async def change_memory(self, change: Change) -> ElasticProgress:
        """Expand or squeeze, to the end; ChangeRefused when it is not possible now."""
        call, request = {
            Change.EXPAND: (self._stub.Expand, ExpandRequest()),
            Change.SQUEEZE: (self._stub.Squeeze, SqueezeRequest()),
        }[change]
        with self._away_on_failure(change.capitalize()):
            try:
                reports = [progress async for progress in call(request, timeout=_CHANGE_SECONDS)]
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                    raise
                raise ChangeRefused(error.details()) from error
        last: ElasticProgress = reports[-1]
        return last

    async def steps(self, *, observe: bool = False) -> AsyncIterator[StepBatch]:
        """Batches until the engine goes away, which raises; `observe` leaves the sidecar's own stream alone."""
        request = WatchStepsRequest(max_delay_ms=_MAX_DELAY_MS, observe=observe)
        with self._away_on_failure("WatchSteps"):
            async for batch in self._stub.WatchSteps(request):
                yield batch
        raise EngineAway(f"WatchSteps on {self._socket}: the engine ended the stream")

    @contextmanager
    def _away_on_failure(self, call: str) -> Iterator[None]:
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise EngineAway(f"{call} on {self._socket}: {error.code().name}: {_said(error)}") from error


def _said(error: grpc.aio.AioRpcError) -> str:
    """Of a failure to connect the end alone: gRPC puts the address before it, twice."""
    details = error.details() or ""
    return details.rpartition(" error: ")[2] if error.code() is grpc.StatusCode.UNAVAILABLE else details
