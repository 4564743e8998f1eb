"""The whole pod with nothing replaced: vLLM, the plugin, the sidecar, a made pair of models."""

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from nightjar_benchmarks.pairs.make import make_pair
from nightjar_benchmarks.pairs.shapes import SHAPES
from nightjar_operator.local.pod import Deadlines, LocalPod

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

TOKENS = 300


class Completion:
    """One streamed request; `first_chunk` is set as soon as text arrives."""

    def __init__(self, pod, prompt):
        self.first_chunk = threading.Event()
        self._pod = pod
        self._prompt = prompt

    def run(self):
        """Tokens received, by the server's own count."""
        body = {
            "model": self._pod.model,
            "prompt": self._prompt,
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        with httpx.stream(
            "POST", f"{self._pod.openai_url}/completions", json=body, trust_env=False, timeout=600
        ) as answer:
            answer.raise_for_status()
            chunks = [self._chunk(line) for line in answer.iter_lines() if line.startswith("data: {")]
        return chunks[-1]["usage"]["completion_tokens"]

    def _chunk(self, line):
        chunk = json.loads(line.removeprefix("data: "))
        if chunk["choices"]:
            self.first_chunk.set()
        return chunk


def in_flight(pool, pod, count):
    """Futures of `count` requests, all of which have begun to answer."""
    completions = [Completion(pod, f"Once upon a time there were {number}") for number in range(count)]
    futures = [pool.submit(completion.run) for completion in completions]
    assert all(completion.first_chunk.wait(600) for completion in completions)
    return futures


def status(pod):
    return httpx.get(pod.status_url, trust_env=False, timeout=600).json()


def eventually(condition, seconds=600):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the deadline passed"
        time.sleep(0.1)


def is_steered_again(pod, killed):
    try:
        return pod.sidecar_pid != killed and status(pod)["ready"]
    except httpx.HTTPError:
        return False


@pytest.fixture
def service(make_service, tmp_path):
    make_pair(tmp_path / "pair", SHAPES["tiny"], [0.9, 0.6], 0)
    return make_service(
        target={"source": {"path": str(tmp_path / "pair" / "target")}, "maxModelLen": 2048},
        draft={"source": {"path": str(tmp_path / "pair" / "draft")}},
        engine={"args": ["--enforce-eager"]},
    )


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_a_pod_serves_outlives_its_sidecar_obeys_edits_and_drains(service, tmp_path, pool):
    events = []
    deadlines = Deadlines(sidecar_ready=600, settings=600, drain=600, exit=120)
    with LocalPod(service, tmp_path / "work", on_event=events.append, deadlines=deadlines) as pod:
        assert Completion(pod, "Once upon a time").run() == TOKENS
        # Its steps may be reported after its last token.
        eventually(lambda: status(pod)["steps"]["seen"] > 0)
        first = status(pod)
        assert first["engine"]["info"]["runner"] == "cpu-v1"

        killed = pod.sidecar_pid
        answers = in_flight(pool, pod, 4)
        os.kill(killed, signal.SIGKILL)
        assert [answer.result() for answer in answers] == [TOKENS] * 4
        eventually(lambda: is_steered_again(pod, killed))
        assert status(pod)["plan"]["version"] > first["plan"]["version"]
        assert status(pod)["engine"]["info"]["engineId"] == first["engine"]["info"]["engineId"]

        pod.apply(with_planner(service, policy="fixed", fixed_gamma=2))
        assert [event.message for event in events if event.kind == "settings"][-1].endswith("is in force")
        assert Completion(pod, "Once more").run() == TOKENS
        eventually(lambda: status(pod)["speculation"]["gamma"] == 2)
        pids = [pod.engine_pid, pod.sidecar_pid]
        answers = in_flight(pool, pod, 2)
    assert [answer.result() for answer in answers] == [TOKENS] * 2
    assert [event.kind for event in events].count("sidecar-exited") == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def with_planner(service, **fields):
    planner = service.spec.planner.model_copy(update=fields)
    return service.model_copy(update={"spec": service.spec.model_copy(update={"planner": planner})})
