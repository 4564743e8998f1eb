"""Stands for an engine, named as one: plays steps of measured times and made-up acceptance under a load that swells
and ebbs. What the sidecar talks to, its control plane, is the real one.
"""

import math
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic, monotonic_ns
from types import TracebackType
from typing import Self

from nightjar_api.engine.v1.engine_pb2 import DRAFT_RESIDENCY_ON_DEVICE, EngineInfo
from nightjar_benchmarks.simulator import step_times
from nightjar_engine_patch.control import ControlPlane
from nightjar_engine_patch.reports import StepRecord
from nightjar_engine_patch.step_measure import StepMeasure

_TIMES = "h200-7b"
_IDLE_SECONDS = 0.05
_ACCEPTANCE = 0.75
_MAX_BATCH = 160
_BLOCKS = 4000
_BLOCKS_PER_REQUEST = 20
_BLOCK_TOKENS = 16
# Of Qwen2.5 7B and 0.5B: keys and values of a token, and the draft's weights.
_TARGET_TOKEN_BYTES = 57_344
_DRAFT_TOKEN_BYTES = 12_288
_DRAFT_WEIGHT_BYTES = 988_000_000


def tide(seconds: float) -> int:
    """Requests in the system: none to two hundred and back within a minute, mostly few."""
    return round(200 * (0.5 - 0.5 * math.cos(2 * math.pi * seconds / 60)) ** 2) + 1


class FakeEngine:
    """`with FakeEngine(socket, load, seed):` plays from the first step on; `load` gives requests by seconds since."""

    def __init__(self, socket: Path, load: Callable[[float], int] = tide, seed: int = 0) -> None:
        self._times = step_times.load(_TIMES)
        info = EngineInfo(
            nightjar_version="0.1.0",
            vllm_version="0.32.0",
            runner="fake",
            target_model="Qwen2.5-7B (fake engine)",
            draft_model="Qwen2.5-0.5B",
            gamma_max=self._times.gamma_max,
            max_batch=_MAX_BATCH,
            tensor_parallel_size=1,
            block_tokens=_BLOCK_TOKENS,
            block_bytes=_BLOCK_TOKENS * (_TARGET_TOKEN_BYTES + _DRAFT_TOKEN_BYTES),
            draft_block_bytes=_BLOCK_TOKENS * _DRAFT_TOKEN_BYTES,
            draft_weight_bytes=_DRAFT_WEIGHT_BYTES,
            blocks=_BLOCKS,
        )
        self._control = ControlPlane(socket, info, report_queue=4096)
        self._load = load
        self._rng = Random(seed)  # noqa: S311 - data, no secret
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._play, name="fake-engine")
        self._step = 0
        self._drafted = (0, 0)
        self._stale = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._control.close()

    def _play(self) -> None:
        begun = monotonic()
        rest = 0.0
        while not self._stop.wait(rest):
            requests = self._load(monotonic() - begun)
            # Without requests an engine takes no steps.
            rest = self._advance(requests) if requests else _IDLE_SECONDS

    def _advance(self, requests: int) -> float:
        """One step; the seconds it takes."""
        batch = min(requests, _MAX_BATCH)
        plan = self._control.holder.plan
        obeyed = plan if plan is not None and monotonic_ns() <= plan.expires_ns else None
        gamma = obeyed.next_gamma(batch) if obeyed else 0
        verified = self._drafted[1]
        catch_up, self._stale = (self._stale, 0) if gamma else (0, self._stale + batch)
        forward, draft = self._times.forward[verified, batch], self._times.draft[gamma, batch]
        caught_up_s = self._times.catch_up_start_s + catch_up * self._times.catch_up_token_s if catch_up else 0.0
        noise = math.exp(self._rng.gauss(0, self._times.noise))
        forward_ns, draft_ns, catch_up_ns = (round(1e9 * noise * each) for each in (forward, draft, caught_up_s))
        lengths = [1 + self._accepted(verified) for _ in range(batch)]
        self._step += 1
        seconds = 1e-9 * (forward_ns + draft_ns + catch_up_ns)
        self._control.reports.append(
            StepRecord(
                step=self._step,
                time_ns=monotonic_ns(),
                step_ns=forward_ns + draft_ns + catch_up_ns,
                decode_batch=batch,
                scheduled_tokens=batch * (1 + verified),
                recomputed_tokens=0,
                drafts={str(row): range(verified) for row in range(batch)} if verified else {},
                proposed=None,
                row_of={str(row): row for row in range(batch)},
                lengths=lengths,
                emitted=[range(length) for length in lengths],
                drafted=self._drafted,
                gamma=gamma,
                measure=StepMeasure(
                    draft_weight_bytes=_DRAFT_WEIGHT_BYTES,
                    draft_ns=draft_ns,
                    catch_up_ns=catch_up_ns,
                    catch_up_tokens=catch_up,
                    stale_tokens=self._stale,
                    bookkeeping_ns=0,
                ),
                free_blocks=max(0, _BLOCKS - _BLOCKS_PER_REQUEST * batch),
                total_blocks=_BLOCKS,
                running=batch,
                waiting=requests - batch,
                plan_version=obeyed.version if obeyed else 0,
                elastic_ns=0,
                residency=DRAFT_RESIDENCY_ON_DEVICE,
            )
        )
        self._drafted = (self._step, gamma)
        return seconds

    def _accepted(self, gamma: int) -> int:
        accepted = 0
        while accepted < gamma and self._rng.random() < _ACCEPTANCE:
            accepted += 1
        return accepted
