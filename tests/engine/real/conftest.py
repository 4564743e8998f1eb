"""Two real engines for the whole folder: servers as a user starts them, steered by the tests over gRPC."""

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import count, cycle, islice
from pathlib import Path
from random import Random

import grpc
import httpx
import pytest

from nightjar_api.engine.v1 import engine_pb2, engine_pb2_grpc
from nightjar_benchmarks.ports import free_port
from nightjar_operator.local.process import Process
from nightjar_operator.local.programs import installed

CONTEXT = 512
GAMMA_MAX = 5
# Far more than anything takes on an idle machine: they only end what would never end.
START_SECONDS = 500
DEADLINE = 300
LAST_PROMPT = 87
ENGINES = ExitStack()


class Engine:
    """A running server with a made pair, its control plane, and what clients do with it."""

    context = CONTEXT

    def __init__(self, folder, pair, draft, settings, args):
        programs = installed()
        self.pair = pair
        # Reports enough for a reader that does not run for long: the tests count every step.
        self.settings = {"socket": str(folder / "e.sock"), "report_queue": 1 << 16} | settings
        self.socket = Path(self.settings["socket"])
        self._model = str(pair.target)
        self._versions = count(1)
        self._lasts = count()
        speculative = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": GAMMA_MAX}
        port = free_port()
        argv = [
            *(*programs.engine, self._model, "--host", "127.0.0.1", "--port", str(port)),
            # As in a pod; without time to shut down vLLM kills its engine process.
            *("--shutdown-timeout", "30"),
            *("--enforce-eager", "--max-model-len", str(CONTEXT)),
            *("--speculative-config", json.dumps(speculative)),
            *("--additional-config", json.dumps({"nightjar": self.settings})),
            *args,
        ]
        self._process = Process("engine", argv, programs.engine_env | os.environ, folder / "log")
        # The server hangs up on connections that idle for 5 s, and a request sent in that moment would be lost.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=url, timeout=DEADLINE, limits=limits, trust_env=False)
        self._wait_until_healthy()
        self._channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.stub = engine_pb2_grpc.EngineStub(self._channel)

    @property
    def info(self):
        return self.stub.GetInfo(engine_pb2.GetInfoRequest(), timeout=DEADLINE)

    def plan(self, *segments, hold, ttl_ms=600_000):
        """`plan((3, 7), (0, 9), hold=2)` for every batch; its version."""
        schedule = [engine_pb2.Segment(gamma=gamma, steps=steps) for gamma, steps in segments]
        bucket = engine_pb2.BucketPlan(max_batch=1, schedule=schedule, hold_gamma=hold)
        plan = engine_pb2.Plan(version=next(self._versions), ttl_ms=ttl_ms, buckets=[bucket])
        return self.stub.ApplyPlan(engine_pb2.ApplyPlanRequest(plan=plan), timeout=DEADLINE).version

    def continue_plans(self):
        """Behind the plans of somebody else."""
        self._versions = count(self.info.plan_version + 1)

    def expand(self):
        """Every report of the call, to its end."""
        return list(self.stub.Expand(engine_pb2.ExpandRequest(), timeout=DEADLINE))

    def squeeze(self):
        return list(self.stub.Squeeze(engine_pb2.SqueezeRequest(), timeout=DEADLINE))

    def body(self, prompt, tokens, **fields):
        return {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        } | fields

    def complete(self, prompt, tokens, **fields):
        """The one choice of a completion."""
        answer = self.client.post("/v1/completions", json=self.body(prompt, tokens, **fields))
        assert answer.status_code == 200, f"{answer.text}\n{self.log_tail()}"
        (choice,) = answer.json()["choices"]
        return choice

    def token_ids(self, prompt, tokens, **fields):
        return self.complete(prompt, tokens, **fields)["token_ids"]

    def check(self, prompt, expected):
        assert self.token_ids(prompt, len(expected)) == expected

    def stream(self, prompt, tokens):
        """Chunks of a streamed completion, as text."""
        body = self.body(prompt, tokens, stream=True)
        with self.client.stream("POST", "/v1/completions", json=body) as answer:
            yield from (line for line in answer.iter_lines() if line.startswith("data: {"))

    def all_token_ids(self, requests):
        """Token ids of each (prompt, tokens) or (prompt, tokens, fields), sent in order and without waiting for any.

        So the engine has a crowd, however slow its clients are.
        """
        return [choice["token_ids"] for choice in self.all_choices(requests)]

    def all_choices(self, requests):
        with ThreadPoolExecutor(len(requests)) as clients:
            calls = [clients.submit(self.complete, r[0], r[1], **(r[2] if len(r) > 2 else {})) for r in requests]
        return [call.result() for call in calls]

    def all_leave(self, requests):
        """Clients that hang up after their first chunk."""

        def leave(prompt, tokens):
            stream = self.stream(prompt, tokens)
            next(stream)
            stream.close()

        with ThreadPoolExecutor(len(requests)) as clients:
            calls = [clients.submit(leave, *request) for request in requests]
        assert [call.result() for call in calls]

    @contextmanager
    def busy(self, made, clients, received):
        """Inside, so many clients send requests without a pause; `received` gets prompts with their answers."""
        stop = threading.Event()

        def client(number):
            for prompt, tokens in islice(cycle(made), number, None, clients):
                if stop.is_set():
                    return
                received.append((prompt, self.token_ids(prompt, tokens)))

        with ThreadPoolExecutor(clients) as threads:
            calls = [threads.submit(client, number) for number in range(clients)]
            try:
                yield
            finally:
                stop.set()
            for call in calls:
                call.result()

    def metric(self, name):
        lines = self.client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith((name + "{", name + " ")))

    @contextmanager
    def watched(self):
        """The reports of all steps inside the context and of no others, complete when it ends."""
        reports, lost = [], []
        stream = self.stub.WatchSteps(engine_pb2.WatchStepsRequest(max_delay_ms=20))

        def read():
            with suppress(grpc.RpcError):
                for batch in stream:
                    lost[:] = [batch.dropped]
                    reports.extend(batch.reports)

        reader = threading.Thread(target=read)
        reader.start()
        try:
            # The call has no answer before there is a step to report. (vLLM's CPU build dies of prompts of four
            # tokens on processors with AMX.)
            self.until(lambda: bool(reports), meanwhile=lambda: self.token_ids(list(range(1, 65)), 2))
            self.until_all_arrived(reports)
            reports.clear()
            yield reports
            self.until_all_arrived(reports)
            assert not any(lost), f"{lost} reports were lost: their reader did not run in time"
        finally:
            stream.cancel()
            reader.join(DEADLINE)

    def until_all_arrived(self, reports):
        """No request is left, and the reports of all steps so far have arrived.

        Reports come in order, so those of a last request show it; they are taken out again.
        """
        self.until_idle()
        # Alone in its step, of a length that no test asks for in the end, and unlike all that was cached.
        prompt = Random(next(self._lasts)).sample(range(1, 2048), LAST_PROMPT)
        seen = len(reports)
        self.token_ids(prompt, 1)
        self.until(lambda: len(reports) > seen and reports[-1].prefill_tokens == LAST_PROMPT - 1)
        reports.pop()

    def until_idle(self):
        self.until(lambda: self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting") == 0)

    def until(self, condition, meanwhile=lambda: None):
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, "the deadline passed"
            meanwhile()
            time.sleep(0.02)

    def stop(self):
        """As `nightjar local` and a kubelet do: SIGTERM; and nothing may be left."""
        self._channel.close()
        self.client.close()
        pid = self._process.pid
        try:
            os.kill(pid, signal.SIGTERM)
            self.until(lambda: self._process.exit_code() is not None)
            assert self._process.exit_code() == 0, self.log_tail()
            self.until(lambda: not group_exists(pid))
            assert not self.socket.exists()
        finally:
            self._process.kill()

    def log_tail(self):
        return "\n".join(self._process.last_lines(80))

    def _wait_until_healthy(self):
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self._process.exit_code() is not None or time.monotonic() > deadline:
                tail = self.log_tail()
                self._process.kill()
                pytest.fail(f"the engine did not start:\n{tail}")
            with suppress(httpx.TransportError):
                if self.client.get("/health").status_code == 200:
                    return
            time.sleep(0.2)


def group_exists(pid):
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def running(pair, draft, settings, args):
    # Sockets want short paths.
    with tempfile.TemporaryDirectory(prefix="nj-") as folder:
        engine = Engine(Path(folder), pair, draft, settings, args)
        try:
            yield engine
        finally:
            engine.stop()


@pytest.fixture(scope="session")
def engines():
    with ENGINES:
        yield ENGINES


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem):
    """Tests of other folders should not share the machine with engines that nobody uses any more.

    Last: the end of a test's own fixtures may still ask an engine for something.
    """
    if nextitem is not None and not nextitem.path.is_relative_to(Path(__file__).parent):
        ENGINES.close()


@pytest.fixture(scope="session")
def crowded(engines, pair):
    """Too few blocks for its requests, prompts in chunks, a fallback of 1, and memory that can change hands."""
    settings = {"fallback_gamma": 1, "catch_up_tokens": 64, "elastic": True}
    args = [
        *("--max-num-seqs", "8", "--max-num-batched-tokens", "160"),
        *("--block-size", "32", "--num-gpu-blocks-override", "51"),
        *("--structured-outputs-config", '{"backend": "xgrammar", "disable_any_whitespace": true}'),
    ]
    return engines.enter_context(running(pair, pair.draft, settings, args))


@pytest.fixture(scope="session")
def ranked(engines, pair, tmp_path_factory):
    """Requests with priorities, few blocks, and a draft whose context is shorter than the target's."""
    draft = tmp_path_factory.mktemp("short") / "draft"
    shutil.copytree(pair.draft, draft)
    config = json.loads((draft / "config.json").read_text())
    (draft / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 320}))
    args = [
        *("--scheduling-policy", "priority", "--max-num-seqs", "4"),
        *("--block-size", "32", "--num-gpu-blocks-override", "41"),
    ]
    return engines.enter_context(running(pair, draft, {}, args))


@pytest.fixture(scope="session")
def story(crowded, crowd, restless):
    """A crowd under a plan that changes γ every few steps: requests, what came back, reports, counters."""
    made = crowd([0, 1], 48, 1)
    names = ("vllm:num_preemptions_total", "vllm:prefix_cache_hits_total")
    before = {name: crowded.metric(name) for name in names}
    with crowded.watched() as reports:
        version = crowded.plan(*restless, hold=2)
        received = crowded.all_token_ids(made)
    return {
        "made": made,
        "received": received,
        "reports": reports,
        "version": version,
        "counters": {name: crowded.metric(name) - before[name] for name in names},
    }
