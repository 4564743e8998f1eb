"""The control plane: a gRPC server on a unix socket inside the engine core's process.

Its threads only swap references that the scheduler reads (the plan) or drain a queue the scheduler fills (the
reports); the scheduler never takes a lock and never waits.
"""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic_ns
from typing import Any

import grpc

from nightjar_api.engine.v1 import engine_pb2, engine_pb2_grpc
from nightjar_engine_patch.elastic.memory_state import MemoryState
from nightjar_engine_patch.elastic.operations import Kind, Operation, Progress
from nightjar_engine_patch.errors import ElasticError, PlanError, RefusalError
from nightjar_engine_patch.plan import CompiledPlan, compile_plan
from nightjar_engine_patch.reports import Reports, to_message

# Two readers of reports, two that replace them, a change of memory, and short calls beside them.
_THREADS = 8
_DEFAULT_DELAY_MS = 100
NO_ELASTIC_POOL = (
    "this engine has no elastic pool: the draft's memory stays with the draft; "
    "additional_config.nightjar.elastic makes one at the next start"
)


class PlanHolder:
    """The plan in force; the server's threads write `plan`, the scheduler reads it once a step."""

    def __init__(self) -> None:
        self.plan: CompiledPlan | None = None
        self.last_version = 0

    def in_force(self, now_ns: int) -> CompiledPlan | None:
        plan = self.plan
        return None if plan is None or now_ns > plan.expires_ns else plan

    def put(self, plan: CompiledPlan) -> None:
        self.plan = plan
        self.last_version = plan.version


class EngineService(engine_pb2_grpc.EngineServicer):
    """See engine.proto."""

    def __init__(
        self,
        info: engine_pb2.EngineInfo,
        holder: PlanHolder,
        reports: Reports,
        memory: MemoryState | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
    ) -> None:
        self._info = info
        self._holder = holder
        self._reports = reports
        self._memory = memory
        self._now_ns = now_ns
        self._apply = threading.Lock()

    def GetInfo(self, _: engine_pb2.GetInfoRequest, __: Any) -> engine_pb2.EngineInfo:
        info = engine_pb2.EngineInfo()
        info.CopyFrom(self._info)
        info.plan_version = self._holder.last_version
        if self._memory is not None:
            info.draft_residency = self._memory.residency
        return info

    def WatchSteps(self, request: engine_pb2.WatchStepsRequest, context: Any) -> Iterator[engine_pb2.StepBatch]:
        delay_s = (request.max_delay_ms or _DEFAULT_DELAY_MS) / 1000
        place = self._reports.observer if request.observe else self._reports.planner
        reader = place.open()
        # Tells the reader that every step from here on is kept for it.
        context.send_initial_metadata(())
        while context.is_active():
            taken = place.take(reader, delay_s)
            if taken is None:
                return
            records, dropped = taken
            if records:
                yield engine_pb2.StepBatch(reports=map(to_message, records), dropped=dropped)

    def ApplyPlan(self, request: engine_pb2.ApplyPlanRequest, context: Any) -> engine_pb2.ApplyPlanResponse:
        with self._apply:
            newest = self._holder.last_version
            if request.plan.version <= newest:
                context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"plan.version: more than {newest}, the version in force, is required, "
                    f"found {request.plan.version}",
                )
            try:
                plan = compile_plan(
                    request.plan,
                    gamma_max=self._info.gamma_max,
                    max_batch=self._info.max_batch,
                    now_ns=self._now_ns(),
                )
            except PlanError as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            self._holder.put(plan)
        return engine_pb2.ApplyPlanResponse(version=plan.version)

    def Expand(self, _: engine_pb2.ExpandRequest, context: Any) -> Iterator[engine_pb2.ElasticProgress]:
        return self._change_memory(Kind.EXPAND, context)

    def Squeeze(self, _: engine_pb2.SqueezeRequest, context: Any) -> Iterator[engine_pb2.ElasticProgress]:
        return self._change_memory(Kind.SQUEEZE, context)

    def _change_memory(self, kind: Kind, context: Any) -> Iterator[engine_pb2.ElasticProgress]:
        if self._memory is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, self._info.elastic_unsupported_reason)
            return
        operation = Operation(kind)
        self._memory.submit(operation)
        try:
            yield from map(_message, operation.progress())
        except ElasticError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


class ControlPlane:
    """What the scheduler holds: the plan, the reports, and the server that connects both to the sidecar."""

    def __init__(
        self, path: Path, info: engine_pb2.EngineInfo, report_queue: int, memory: MemoryState | None = None
    ) -> None:
        """Listen on `path` with mode 0600; RefusalError when another process does, or when that is impossible."""
        info.engine_id = str(uuid.uuid4())
        if memory is None:
            info.elastic_unsupported_reason = NO_ELASTIC_POOL
        info.draft_residency = engine_pb2.DRAFT_RESIDENCY_ON_DEVICE
        self.info = info
        self.holder = PlanHolder()
        self.reports = Reports(report_queue)
        self._path = path
        self._memory = memory
        self._closed = False
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, thread_name_prefix="nightjar-control"))
        service = EngineService(info, self.holder, self.reports, memory)
        engine_pb2_grpc.add_EngineServicer_to_server(service, self._server)  # type: ignore[no-untyped-call]
        _remove_stale(path)
        _listen(self._server, path)
        self._server.start()
        # A process that leaves without `shutdown` joins the pool's threads before anything that `atexit` knows;
        # one that serves a stream would never end.
        threading._register_atexit(self.close)  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the readers' streams, stop listening, remove the socket. Safe to call again."""
        if self._closed:
            # By now the path may be another engine's.
            return
        self._closed = True
        self.reports.close()
        if self._memory is not None:
            self._memory.close()
        self._server.stop(grace=0.5).wait()
        self._path.unlink(missing_ok=True)


def _message(progress: Progress) -> engine_pb2.ElasticProgress:
    return engine_pb2.ElasticProgress(
        draft_residency=progress.residency,
        blocks=progress.blocks,
        moved_blocks=progress.moved_blocks,
        moved_bytes=progress.moved_bytes,
        elapsed_ns=progress.elapsed_ns,
    )


def _remove_stale(path: Path) -> None:
    """Remove the socket of an engine that is gone; RefusalError when somebody answers on it."""
    if not path.parent.is_dir():
        raise RefusalError(f"additional_config.nightjar.socket: the folder {path.parent} is required, but missing")
    if not path.exists():
        return
    if not path.is_socket():
        raise RefusalError(
            f"additional_config.nightjar.socket: {path} exists and is no socket; remove it or name another"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        # An engine that hangs does not accept.
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise RefusalError(
                f"additional_config.nightjar.socket: {path} cannot be taken over ({error}); "
                f"stop what listens there, or name another path"
            ) from error
    raise RefusalError(
        f"additional_config.nightjar.socket: {path} is in use by another engine; stop it or name another path"
    )


def _listen(server: Any, path: Path) -> None:
    before = os.umask(0o177)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise RefusalError(f"additional_config.nightjar.socket: cannot listen on {path}: {error}") from error
    finally:
        os.umask(before)
