"""The control plane over a real unix socket."""

import os
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, count

import grpc
import pytest

from nightjar_api.engine.v1 import engine_pb2, engine_pb2_grpc
from nightjar_engine_patch.control import NO_ELASTIC_POOL, ControlPlane
from nightjar_engine_patch.elastic.directive import Obeyed
from nightjar_engine_patch.elastic.memory_state import MemoryState
from nightjar_engine_patch.errors import RefusalError

DEADLINE = 50
INFO = {"gamma_max": 5, "max_batch": 8, "runner": "cpu-v1", "fallback_gamma": 1}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "engine.sock"


@pytest.fixture
def open_plane(path):
    """`open_plane()` listens on `path`; closed when the test ends."""
    planes = []

    def open_one(report_queue=64, memory=None):
        planes.append(ControlPlane(path, engine_pb2.EngineInfo(**INFO), report_queue, memory))
        return planes[-1]

    yield open_one
    for plane in planes:
        plane.close()


@pytest.fixture
def stub(path):
    with grpc.insecure_channel(f"unix:{path}") as channel:
        yield engine_pb2_grpc.EngineStub(channel)


def info(stub):
    return stub.GetInfo(engine_pb2.GetInfoRequest(), timeout=DEADLINE)


def apply(stub, plan):
    return stub.ApplyPlan(engine_pb2.ApplyPlanRequest(plan=plan), timeout=DEADLINE)


def watch(stub, plane, max_delay_ms=20):
    """A stream that the engine serves from here on."""
    before = plane.reports.planner._reader
    stream = stub.WatchSteps(engine_pb2.WatchStepsRequest(max_delay_ms=max_delay_ms))
    stream.initial_metadata()
    assert plane.reports.planner._reader > before, "said to be read before it is"
    return stream


def eventually(condition):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "the deadline passed"
        time.sleep(0.005)


def refused(call, *arguments):
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments)
    return caught.value.code(), caught.value.details()


def test_only_the_owner_may_connect(path, open_plane):
    before = os.umask(0)
    try:
        open_plane()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.umask(0) == 0, "the process's umask is its own again"
    finally:
        os.umask(before)


def test_an_engine_says_what_it_is_and_each_start_has_an_id(open_plane, stub):
    plane = open_plane()
    first = info(stub)
    assert {name: getattr(first, name) for name in INFO} == INFO
    assert first.plan_version == 0
    assert first.elastic_unsupported_reason == NO_ELASTIC_POOL
    plane.close()
    open_plane()
    eventually(lambda: answers(stub))
    assert info(stub).engine_id != first.engine_id


def answers(stub):
    try:
        info(stub)
    except grpc.RpcError:
        return False
    return True


def test_a_plan_is_in_force_at_once_and_its_version_is_told(open_plane, stub, make_plan):
    plane = open_plane()
    assert apply(stub, make_plan((8, [(3, 1)], 2), version=7)).version == 7
    assert info(stub).plan_version == 7
    assert [plane.holder.plan.next_gamma(4) for _ in range(3)] == [3, 2, 2]
    left_s = (plane.holder.plan.expires_ns - time.monotonic_ns()) / 1e9
    assert 60 - DEADLINE < left_s <= 60


@pytest.mark.parametrize("version", [0, 6, 7])
def test_a_version_that_is_not_newer_is_refused_and_the_plan_stays(open_plane, stub, make_plan, version):
    plane = open_plane()
    apply(stub, make_plan((8, [], 2), version=7))
    in_force = plane.holder.plan
    code, details = refused(apply, stub, make_plan((8, [], 3), version=version))
    assert code == grpc.StatusCode.FAILED_PRECONDITION
    assert "more than 7" in details
    assert f"found {version}" in details
    assert plane.holder.plan is in_force
    assert info(stub).plan_version == 7


def test_a_wrong_plan_is_refused_by_its_field_and_its_version_can_be_used_again(open_plane, stub, make_plan):
    plane = open_plane()
    apply(stub, make_plan((8, [], 2), version=7))
    in_force = plane.holder.plan
    code, details = refused(apply, stub, make_plan((8, [(6, 1)], 2), version=8))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert details.startswith("plan.buckets[0].schedule[0].gamma: ")
    assert plane.holder.plan is in_force
    assert apply(stub, make_plan((8, [], 3), version=8)).version == 8


def test_of_many_plans_at_once_the_newest_wins(open_plane, stub, make_plan):
    plane = open_plane()

    def attempt(version):
        call = engine_pb2.ApplyPlanRequest(plan=make_plan((8, [], version % 6), version=version))
        return stub.ApplyPlan(call, timeout=DEADLINE).version

    with ThreadPoolExecutor(8) as pool:
        attempts = [pool.submit(attempt, version) for version in range(1, 65)]
    refusals = {done.exception().code() for done in attempts if done.exception()}
    assert refusals <= {grpc.StatusCode.FAILED_PRECONDITION}
    assert plane.holder.plan.version == info(stub).plan_version == attempts[-1].result() == 64


@pytest.mark.parametrize(("call", "request_type"), [("Expand", "ExpandRequest"), ("Squeeze", "SqueezeRequest")])
def test_elastic_memory_is_refused_with_the_reason(open_plane, stub, call, request_type):
    open_plane()
    progress = getattr(stub, call)(getattr(engine_pb2, request_type)(), timeout=DEADLINE)
    code, details = refused(list, progress)
    assert (code, details) == (grpc.StatusCode.FAILED_PRECONDITION, NO_ELASTIC_POOL)


@pytest.fixture
def memory():
    """The memory of an engine that steps as often as a test says."""

    class Blocks:
        total = 10

        def grow(self, total):
            self.total = total

        def withdraw(self, total, most):
            return True

        def shrink(self, total):
            self.total = total
            return [(11, 3)]

    return MemoryState(Blocks(), now_ns=count(step=5).__next__)


def expand(stub):
    return stub.Expand(engine_pb2.ExpandRequest(), timeout=DEADLINE)


def test_a_change_of_memory_is_told_from_its_beginning_to_its_end(open_plane, stub, memory):
    open_plane(memory=memory)
    assert info(stub).elastic_unsupported_reason == ""
    progress = expand(stub)
    eventually(lambda: memory.asked)
    memory.decide(0, "")
    begun = next(progress)
    assert (begun.draft_residency, begun.blocks) == (engine_pb2.DRAFT_RESIDENCY_LEAVING, 10)
    memory.obeyed(Obeyed(blocks=14, moved_bytes=99))
    assert list(progress) == [
        engine_pb2.ElasticProgress(
            draft_residency=engine_pb2.DRAFT_RESIDENCY_AWAY, blocks=14, moved_bytes=99, elapsed_ns=5
        )
    ]
    progress = stub.Squeeze(engine_pb2.SqueezeRequest(), timeout=DEADLINE)
    eventually(lambda: memory.asked)
    memory.decide(0, "")
    begun, moved = next(progress), next(progress)
    assert (begun.draft_residency, begun.blocks, begun.moved_blocks) == (engine_pb2.DRAFT_RESIDENCY_RETURNING, 14, 0)
    assert (moved.draft_residency, moved.blocks, moved.moved_blocks) == (engine_pb2.DRAFT_RESIDENCY_RETURNING, 10, 1)
    memory.obeyed(Obeyed(blocks=10, moved_bytes=99))
    assert [one.draft_residency for one in progress] == [engine_pb2.DRAFT_RESIDENCY_ON_DEVICE]


def test_what_is_not_possible_now_is_refused_with_the_reason(open_plane, stub, memory):
    open_plane(memory=memory)
    progress = expand(stub)
    eventually(lambda: memory.asked)
    memory.decide(0, "plan 3, which has γ up to 2")
    assert refused(list, progress) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "expand: γ = 0 for every batch is required, found plan 3, which has γ up to 2",
    )


def test_an_engine_that_stops_answers_who_waits_for_its_memory(open_plane, stub, memory):
    plane = open_plane(memory=memory)
    begun = expand(stub)
    eventually(lambda: memory.asked)
    memory.decide(0, "")
    next(begun)
    waiting = expand(stub)
    eventually(lambda: memory.asked)
    plane.close()
    assert refused(list, waiting)[1] == refused(list, begun)[1] == "the engine is stopping"


def test_steps_arrive_in_order_with_what_was_recorded(open_plane, stub, make_record):
    plane = open_plane()
    stream = watch(stub, plane)
    for step in range(1, 41):
        plane.reports.append(make_record(step, emitted=[[0] * step]))
    reports = chain.from_iterable(batch.reports for batch in stream)
    received = [next(reports) for _ in range(40)]
    assert [report.step for report in received] == [report.emitted_tokens for report in received] == list(range(1, 41))
    assert received[0].draft_residency == engine_pb2.DRAFT_RESIDENCY_ON_DEVICE


def test_a_slow_reader_loses_the_oldest_and_is_told_how_many(open_plane, stub, make_record):
    plane = open_plane(report_queue=16)
    stream = watch(stub, plane, max_delay_ms=500)
    for step in range(1, 101):
        plane.reports.append(make_record(step))
    received, dropped = [], 0
    for batch in stream:
        received += [report.step for report in batch.reports]
        assert batch.dropped >= dropped, "the count is of the whole call"
        dropped = batch.dropped
        if received[-1] == 100:
            break
    assert received == sorted(set(received))
    assert received[-16:] == list(range(85, 101))
    assert dropped == 100 - len(received) > 0


def test_a_reader_that_never_reads_holds_up_neither_steps_nor_plans(open_plane, stub, make_record, make_plan):
    plane = open_plane()
    watch(stub, plane, max_delay_ms=1)
    emitted = [list(range(64))]
    for step in range(1, 20_001):
        plane.reports.append(make_record(step, emitted=emitted))
    assert len(plane.reports.planner._records) <= 64
    assert apply(stub, make_plan((8, [], 2), version=1)).version == 1


def test_a_second_reader_ends_the_first_and_starts_from_now(open_plane, stub, make_record):
    plane = open_plane()
    first = watch(stub, plane, max_delay_ms=60_000)
    plane.reports.append(make_record(1))
    second = watch(stub, plane)
    assert list(first) == []
    plane.reports.append(make_record(2))
    assert [report.step for report in next(second).reports] == [2]


def test_an_observer_and_the_one_that_plans_get_the_same_and_leave_each_other_alone(open_plane, stub, make_record):
    plane = open_plane()
    planner = watch(stub, plane)
    for step in (1, 2):
        observer = stub.WatchSteps(engine_pb2.WatchStepsRequest(max_delay_ms=20, observe=True))
        observer.initial_metadata()
        plane.reports.append(make_record(step))
        assert [report.step for report in next(observer).reports] == [step]
        assert [report.step for report in next(planner).reports] == [step]


def test_readers_that_come_and_go_leave_room_for_calls(open_plane, stub):
    plane = open_plane()
    for _ in range(12):
        watch(stub, plane, max_delay_ms=2**32 - 1).cancel()
    assert info(stub).max_batch == 8


def test_close_ends_streams_removes_the_socket_and_may_be_repeated(open_plane, stub, path):
    plane = open_plane()
    stream = watch(stub, plane, max_delay_ms=60_000)
    plane.close()
    assert list(stream) == []
    assert not path.exists()
    successor = open_plane()
    plane.close()
    assert path.exists(), "a second close leaves the socket of the next engine alone"
    successor.close()


def test_the_socket_of_a_dead_engine_is_taken_over(open_plane, stub, path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.is_socket()
    open_plane()
    assert info(stub).max_batch == 8


def test_a_live_engine_is_not_robbed_of_its_socket(open_plane, stub):
    open_plane()
    before = info(stub).engine_id
    with pytest.raises(RefusalError, match=r"socket: .* is in use by another engine; stop it or name another path"):
        open_plane()
    assert info(stub).engine_id == before


def test_a_socket_of_another_kind_is_left_alone(open_plane, path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))
        with pytest.raises(RefusalError, match=r"nightjar\.socket: .* cannot be taken over"):
            open_plane()
    assert path.is_socket()


def test_a_file_in_the_way_is_left_alone(open_plane, path):
    path.write_text("precious")
    with pytest.raises(RefusalError, match="exists and is no socket; remove it or name another"):
        open_plane()
    assert path.read_text() == "precious"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(RefusalError, match=f"the folder {tmp_path}/missing is required, but missing"):
        ControlPlane(tmp_path / "missing" / "e.sock", engine_pb2.EngineInfo(), 16)


def test_a_path_that_no_socket_can_have_is_refused(tmp_path):
    long = tmp_path / ("x" * 100)
    with pytest.raises(RefusalError, match="cannot listen on"):
        ControlPlane(long, engine_pb2.EngineInfo(), 16)


LEAVES_WITHOUT_CLOSE = """
import sys
from pathlib import Path
from nightjar_api.engine.v1 import engine_pb2
from nightjar_engine_patch.control import ControlPlane
plane = ControlPlane(Path(sys.argv[1]), engine_pb2.EngineInfo(gamma_max=5, max_batch=8), 64)
print("listening", flush=True)
while plane.reports.planner._reader == 0:
    pass
"""


@pytest.mark.parametrize(("last_line", "code"), [("", 0), ("raise RuntimeError('no shutdown')", 1)])
def test_a_process_that_leaves_without_close_ends_although_it_is_read(path, stub, last_line, code):
    command = [sys.executable, "-c", LEAVES_WITHOUT_CLOSE + last_line, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as engine:
        try:
            assert engine.stdout.readline() == "listening\n"
            stream = stub.WatchSteps(engine_pb2.WatchStepsRequest(max_delay_ms=2**32 - 1))
            assert engine.wait(DEADLINE) == code
            assert list(stream) == []
        finally:
            engine.kill()
    assert not path.exists()
