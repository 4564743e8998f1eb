"""A server of several processes with the product's sidecar beside it, as a pod has them."""

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import httpx
import pytest

from nightjar_api.engine.v1.engine_pb2 import DRAFT_RESIDENCY_AWAY, DRAFT_RESIDENCY_ON_DEVICE
from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings, dump
from nightjar_benchmarks.gpu_elastic.measure import arguments
from nightjar_benchmarks.gpu_engine.control import Control
from nightjar_benchmarks.gpu_engine.watcher import STEP_FIELDS
from nightjar_benchmarks.load.replay import replay
from nightjar_benchmarks.load.trace import Phase, requests_of
from nightjar_benchmarks.pairs import expected_continuation
from nightjar_benchmarks.ports import free_port
from nightjar_operator.local.process import Process

pytestmark = pytest.mark.timeout(900)

SERVER = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry"]
# The command alone: the others of `nightjar` need packages that a host with a GPU may lack.
SIDECAR = [sys.executable, "-c", "import typer; from nightjar_sidecar.command import sidecar; typer.run(sidecar)"]
MODEL, BLOCKS, PLACES, DEADLINE = "made", 400, 16, 600


class Server:
    def __init__(self, folder, pair):
        self.pair, self.folder, self.socket = pair, folder, folder / "e.sock"
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        given = arguments(pair, self.socket, BLOCKS, PLACES, 1024) | {"skip_tokenizer_init": False}
        argv = [*SERVER, "--host", "127.0.0.1", "--port", str(port), "--served-model-name", MODEL]
        # As in a pod; without time to shut down vLLM kills its engine process.
        argv += ["--shutdown-timeout", "30", *flags(given)]
        self.process = Process("engine", argv, os.environ, folder / "engine.log")
        until(lambda: answers(f"{self.url}/health"), self.process)

    def serve(self, phase, seed):
        """What came of each of the phase's requests, and what should have."""
        requests = requests_of(self.pair, phase, 100, seed)
        runs = asyncio.run(replay(f"{self.url}/v1", MODEL, [(phase, requests)], time.monotonic, lambda _: None))
        records = {record.id: record for record in runs[0].records}
        found = [records[one.id].error or records[one.id].token_ids for one in requests]
        return found, [expected_continuation(self.pair, one.prompt_ids, one.output_tokens) for one in requests]

    def complete(self, **fields):
        prompt = list(requests_of(self.pair, Phase("one", 1, 1, 0, (1, 1)), 100, 9)[0].prompt_ids)
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 40, "ignore_eos": True} | fields
        answer = httpx.post(f"{self.url}/v1/completions", json=body, timeout=DEADLINE, trust_env=False)
        assert answer.status_code == 200, answer.text

    def log(self):
        return self.process.log.read_text(encoding="utf-8", errors="replace")


def flags(given):
    """vLLM's engine arguments as a command line."""
    found = []
    for name, value in given.items():
        if value is False:
            continue
        found.append("--" + name.replace("_", "-"))
        if value is not True:
            found.append(json.dumps(value) if isinstance(value, dict) else str(value))
    return found


def answers(url):
    with suppress(httpx.TransportError):
        return httpx.get(url, trust_env=False).status_code == 200
    return False


def until(condition, process):
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert process.exit_code() is None, "\n".join(process.last_lines(60))
        assert time.monotonic() < deadline, "\n".join(process.last_lines(60))
        time.sleep(0.1)


@pytest.fixture(scope="module")
def server(pair):
    # Sockets want short paths.
    with tempfile.TemporaryDirectory(prefix="nj-") as folder:
        running = Server(Path(folder), pair)
        try:
            yield running
        finally:
            running.process.terminate(grace_seconds=60)
        assert not running.socket.exists()


@pytest.fixture
def control(server):
    found = Control(str(server.socket))
    yield found
    found.close()


@contextmanager
def sidecar(server):
    """The address of its status."""
    settings, port = server.folder / "settings.json", free_port()
    settings.write_text(dump(SidecarSettings(revision="one", planner=PlannerSpec(policy="nightjar"))))
    argv = [*SIDECAR, "--engine-socket", str(server.socket), "--settings", str(settings), "--port", str(port)]
    process = Process("sidecar", argv, os.environ, server.folder / "sidecar.log")
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/readyz"), process)
        yield f"http://127.0.0.1:{port}/status"
    finally:
        process.terminate(grace_seconds=30)


def test_the_sidecar_plans_for_streamed_completions_that_stay_the_targets_own(server):
    pytest.importorskip("tenacity", reason="needs what a sidecar imports")
    with sidecar(server) as url:
        found, expected = server.serve(Phase("streamed", PLACES, 100, 0, (60, 90)), 1)
        status = httpx.get(url, trust_env=False).json()
    assert found == expected
    assert status["engine"]["connected"]
    assert status["steps"]["seen"] > 100
    assert status["steps"]["dropped"] == 0
    assert status["plan"]["version"] > 0
    assert sum(arm["visits"] for bucket in status["buckets"] for arm in bucket["arms"] if arm["gamma"]) > 0
    assert status["speculation"]["acceptance"]
    assert int(status["engine"]["info"].get("draftGraphs", {}).get("captured", 0)) > 0


def test_an_idle_engine_core_is_woken_to_change_hands(control):
    control.plan([], 0)
    for _ in range(3):
        away, back = control.expand(), control.squeeze()
        assert (away.draft_residency, back.draft_residency) == (DRAFT_RESIDENCY_AWAY, DRAFT_RESIDENCY_ON_DEVICE)
        assert away.blocks > back.blocks == BLOCKS


def test_memory_changes_hands_while_completions_stream(server, control):
    control.take()
    cycles = 0
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(server.serve, Phase("under load", PLACES, 160, 0, (80, 120)), 2)
        while not call.done():
            control.plan([], 0)
            control.expand()
            time.sleep(0.01)
            while not squeezed(control):
                time.sleep(0.01)
            control.plan([], 3)
            time.sleep(0.1)
            cycles += 1
        found, expected = call.result()
    assert found == expected
    assert cycles > 3
    gammas = {row[STEP_FIELDS.index("gamma_drafted")] for row in control.take()}
    assert {0, 3} <= gammas, "with the draft away and with it here"


def squeezed(control):
    """Not while a request waits, or holds what would be given back."""
    try:
        control.squeeze()
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.FAILED_PRECONDITION:
            raise
        return False
    return True


def test_nothing_was_compiled_while_serving(server, control):
    """vLLM watches its kernels from the end of start-up on; the log says what it found."""
    control.plan([], 3)
    server.complete(temperature=0)
    server.complete(temperature=0, logprobs=5)
    server.complete(temperature=0.9, top_p=0.9, top_k=50, seed=1)
    server.complete(temperature=0.9, top_p=0.9, top_k=50, logprobs=5)
    assert any(row[STEP_FIELDS.index("verified_tokens")] for row in control.take())
    assert "Kernel JIT monitor activated" in server.log()
    assert re.findall(r"during inference: (\S+)", server.log()) == []
