"""`kill -9` of the sidecar under load."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx

from nightjar_benchmarks.load.client import RequestRecord
from nightjar_benchmarks.load.replay import replay
from nightjar_benchmarks.load.trace import Phase, requests_of
from nightjar_benchmarks.loop.service import service
from nightjar_benchmarks.pairs import TINY, expected_continuation, make_pair
from nightjar_benchmarks.records import Figure
from nightjar_operator.local.pod import LocalPod

_PHASE = Phase("kill", 16, 160, 0, (300, 400))
_KILL_AFTER = 32  # requests served
_RESUME_SECONDS = 60.0


def measure(workdir: Path) -> dict[str, Figure]:
    """sidecar_kill_failed_requests: failed, or other tokens than expected. RuntimeError when planning never resumes."""
    pair = make_pair(workdir / "pair-tiny", TINY, (0.9,), 0)
    requests = requests_of(pair, _PHASE, pair.shape.context_tokens, 0)
    served: list[RequestRecord] = []
    with LocalPod(service("kill", pair, "bfloat16", _PHASE.concurrency, "nightjar"), workdir / "kill") as pod:
        killed: list[int] = []

        def on_done(record: RequestRecord) -> None:
            served.append(record)
            if len(served) == _KILL_AFTER and pod.sidecar_pid is not None:
                killed.append(pod.sidecar_pid)
                os.kill(pod.sidecar_pid, signal.SIGKILL)

        before = _status(pod)["plan"]["version"]
        asyncio.run(replay(pod.openai_url, pod.model, [(_PHASE, requests)], time.monotonic, on_done))
        resumed_after = _await_resumed(pod, before)
    expected = {
        request.id: expected_continuation(pair, request.prompt_ids, request.output_tokens) for request in requests
    }
    failed = [record.id for record in served if record.error or record.token_ids != expected[record.id]]
    raw = {
        "requests": len(served),
        "failed": failed,
        "sidecars_killed": len(killed),
        "plan_version_before": before,
        "plan_version_after": resumed_after,
    }
    return {"sidecar_kill_failed_requests": Figure(len(failed), "requests", raw)}


def _await_resumed(pod: LocalPod, version: int) -> int:
    """The first plan version of the new sidecar beyond `version`."""
    deadline = time.monotonic() + _RESUME_SECONDS
    while time.monotonic() < deadline:
        try:
            found = _status(pod)
        except httpx.HTTPError:
            found = {"ready": False}
        if found["ready"] and found["plan"]["version"] > version:
            return int(found["plan"]["version"])
        time.sleep(0.2)
    raise RuntimeError(f"a new sidecar's plan within {_RESUME_SECONDS:g} s is required, found none; log in {pod.logs}")


def _status(pod: LocalPod) -> dict[str, Any]:
    with httpx.Client(trust_env=False, timeout=5) as client:
        document: dict[str, Any] = client.get(str(pod.status_url)).raise_for_status().json()
    return document
