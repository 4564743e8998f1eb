"""One vLLM engine with elastic memory in this process, told what to do by JSON lines (see `gpu_engine.under_test`)."""

import resource
import sys
import time
from collections.abc import Callable
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import torch

from nightjar_benchmarks.gpu_elastic.changes import Changes
from nightjar_benchmarks.gpu_engine.under_test import EngineUnderTest, main

# Steps that are alike before anything is asked, and between two changes while the draft is here.
QUIET_STEPS = 40
# Drafts are wanted in every such cycle, for so many steps.
DRAFT_EVERY, DRAFT_STEPS = 20, 6
SAMPLES = 20
# While requests of a crowd wait the draft cannot come back.
CROWD_EVERY = 40
# Below this share of free blocks the pool is short, as by the sidecar's default.
SHORT = 0.1


class Reloads:
    """Marks on the device around each copy of the draft's weights."""

    def __init__(self) -> None:
        from nightjar_engine_patch.gpu.draft_weights import DraftWeights

        self.seen: list[tuple[Any, Any]] = []
        marked: Any = DraftWeights
        original = marked.restore

        def restore(weights: Any) -> None:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            original(weights)
            end.record()
            self.seen.append((start, end))

        marked.restore = restore


class ElasticUnderTest(EngineUnderTest):
    """Also answers what is asked for by the methods here."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.reloads = Reloads()
        super().__init__(arguments)
        self._names = count()

    def books(self) -> dict[str, Any]:
        """Where the memory is."""
        (found,) = self.llm.collective_rpc(_books)
        answer: dict[str, Any] = found
        return answer

    def copy_bandwidth(self, size: int, repeats: int) -> dict[str, Any]:
        """GB/s of pinned copies to a device that does nothing else."""
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(size, dtype=torch.uint8, device="cuda")
        rates = []
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            device.copy_(host, non_blocking=True)
            end.record()
            torch.cuda.synchronize()
            rates.append(size / start.elapsed_time(end) / 1e6)
        return {"gb_s": rates}

    def stalls(self, prompts: list[list[int]], tokens: int, cycles: int, away_steps: int) -> dict[str, Any]:
        """A batch that decodes all the time while memory changes hands `cycles` times.

        away_steps: how many steps the draft is away, in which requests take blocks above the old end
        """
        changes, steps = self._changes(), self.steps
        steps.seen.clear()
        self.reloads.seen.clear()
        base = torch.cuda.Event(enable_timing=True)
        base.record()

        def story(changes: Changes) -> None:
            self._wait_for(lambda: steady_run(steps.seen, len(prompts)) >= QUIET_STEPS)
            for _ in range(cycles):
                changes.expand()
                self._wait_steps(away_steps)
                changes.squeeze()
                self._wait_steps(QUIET_STEPS)

        changes.beside(story, lambda _: self._answers(prompts, tokens))
        torch.cuda.synchronize()
        rows = [
            [first[3], base.elapsed_time(first[2]), first[2].elapsed_time(second[2])]
            for first, second in pairwise(steps.seen)
            if first[:2] == second[:2] == (len(prompts), len(prompts))
        ]
        reloads = [[base.elapsed_time(mark) for mark in marks] for marks in self.reloads.seen]
        return {"steps": rows, "changes": changes.rows(), "reloads": reloads, "books": self.books()}

    def capacity(self, prompts: list[list[int]], tokens: int, seconds: float) -> dict[str, Any]:
        """Requests a second that the pool without the draft's memory serves while others wait all the time: by the
        tokens of the second half of `seconds`. What is not finished then is given up.
        """
        self._control().plan([], 0)
        engine, sampling = self.llm.llm_engine, _streamed(tokens)
        names = [f"capacity-{next(self._names)}" for _ in prompts]
        for name, prompt in zip(names, prompts, strict=True):
            engine.add_request(name, {"prompt_token_ids": prompt}, sampling)
        made, begun, now = 0, time.monotonic(), 0.0
        while now < seconds:
            outputs = engine.step()
            now = time.monotonic() - begun
            made += len(outputs) if now > seconds / 2 else 0
        running, waiting = engine.engine_core.engine_core.scheduler.get_request_counts()
        engine.abort_request(names)
        while engine.has_unfinished_requests():
            engine.step()
        rate = made / (now - seconds / 2) / tokens
        return {"requests_per_s": rate, "running": running, "still_waiting": waiting}

    def serve(
        self,
        prompts: list[list[int]],
        tokens: int,
        arrivals: list[float],
        elastic: bool,  # noqa: FBT001 - a command's field
    ) -> dict[str, Any]:
        """Requests at their times; with `elastic` the draft leaves when the pool gets short, and else never."""
        changes = self._changes()

        def story(changes: Changes) -> None:
            self._wait_for(lambda: self._free_share() < SHORT)
            changes.expand()

        def back(changes: Changes) -> None:
            changes.squeeze()

        def serving(_: Callable[[], bool]) -> dict[str, Any]:
            return self._open_loop(prompts, tokens, arrivals)

        if not elastic:
            return serving(lambda: True)
        found: dict[str, Any] = changes.beside(story, serving)
        # Nothing waits any more, but in an engine in this process changes take steps of requests.
        changes.beside(back, lambda done: self._until(done, prompts[:1]))
        return found | {"changes": changes.rows()}

    def cycles(self, calm: list[list[int]], crowd: list[list[int]], tokens: int, cycles: int) -> dict[str, Any]:
        """The same requests again and again, with a crowd now and then, while memory changes hands all the time.

        The answers that differ from the first ones to the same prompts are counted; the first are in the answer.
        """
        changes, samples = self._changes(), [self.books()]
        expected = {"calm": self._answers(calm, tokens), "crowd": self._answers(crowd, tokens)}
        story = {"requests": 0, "different": 0, "moved_blocks": 0}

        def sample() -> None:
            story["moved_blocks"] += sum(change.moved_blocks for change in changes.done)
            # What is noted here would look like memory that the engine keeps.
            for noted in (changes.done, self.steps.seen, self.reloads.seen):
                noted.clear()
            samples.append(self.books())
            print(f"{len(samples) - 1} of {SAMPLES} parts of the cycles done", file=sys.stderr, flush=True)

        def round_trips(changes: Changes) -> None:
            for cycle in range(cycles):
                changes.expand()
                changes.squeeze()
                if cycle % DRAFT_EVERY == 0:
                    self._control().plan([], 3)
                    self._wait_steps(DRAFT_STEPS)
                    self._control().plan([], 0)
                if (cycle + 1) % (cycles // SAMPLES or 1) == 0:
                    sample()

        def serving(done: Callable[[], bool]) -> None:
            for turn in count():
                if done():
                    return
                name, prompts = ("crowd", crowd) if turn % CROWD_EVERY == 0 else ("calm", calm)
                received = self._answers(prompts, tokens)
                story["requests"] += len(received)
                story["different"] += sum(a != b for a, b in zip(received, expected[name], strict=True))

        changes.beside(round_trips, serving)
        sample()
        counted = {"cycles": cycles, "refusals": changes.refusals, "samples": samples}
        return story | counted | {"answers": expected, "preempted": self._preempted(), "books": self.books()}

    def _control(self) -> Any:
        if self.control is None:
            raise RuntimeError("an engine with the plugin is required")
        return self.control

    def _changes(self) -> Changes:
        """Of an engine in which nothing is speculated."""
        self._control().plan([], 0)
        return Changes(self._control())

    def _answers(self, prompts: list[list[int]], tokens: int) -> list[list[int]]:
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(given, _sampling(tokens), use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]

    def _until(self, done: Callable[[], bool], prompts: list[list[int]]) -> None:
        while not done():
            self._answers(prompts, 4)

    def _open_loop(self, prompts: list[list[int]], tokens: int, arrivals: list[float]) -> dict[str, Any]:
        engine, sampling = self.llm.llm_engine, _streamed(tokens)
        due: dict[str, float] = {}
        first: dict[str, float] = {}
        ends: dict[str, float] = {}
        given, started = 0, time.monotonic()
        while given < len(prompts) or engine.has_unfinished_requests():
            now = time.monotonic() - started
            while given < len(prompts) and arrivals[given] <= now:
                name = f"open-{next(self._names)}"
                due[name] = arrivals[given]
                engine.add_request(name, {"prompt_token_ids": prompts[given]}, sampling)
                given += 1
            if not engine.has_unfinished_requests():
                time.sleep(max(arrivals[given] - now, 0))
                continue
            outputs = engine.step()
            now = time.monotonic() - started
            for output in outputs:
                first.setdefault(output.request_id, now)
                if output.finished:
                    ends[output.request_id] = now
        # Those that are there at the start only fill the pool.
        ttft = [first[name] - due[name] for name in due if due[name]]
        return {"ttft_s": ttft, "tokens": tokens * len(prompts), "seconds": max(ends.values())}

    def _free_share(self) -> float:
        pool = self.llm.llm_engine.engine_core.engine_core.scheduler.kv_cache_manager.block_pool
        return float(pool.get_num_free_blocks()) / float(pool.num_gpu_blocks)

    def _wait_steps(self, steps: int) -> None:
        end = len(self.steps.seen) + steps
        self._wait_for(lambda: len(self.steps.seen) >= end)

    def _wait_for(self, holds: Callable[[], bool], seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                steps = len(self.steps.seen)
                raise TimeoutError(f"the engine did not get as far as the measurement needs, after {steps} steps")
            time.sleep(0.0005)


def steady_run(seen: list[tuple[int, int, Any, float]], batch: int) -> int:
    """How many of the latest steps were of `batch` requests that all decode."""
    run = 0
    for step in reversed(seen):
        if step[:2] != (batch, batch):
            break
        run += 1
    return run


def _sampling(tokens: int) -> Any:
    from vllm import SamplingParams

    return SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)


def _streamed(tokens: int) -> Any:
    """As a server asks for it that streams: a step's output has its tokens only."""
    from vllm.sampling_params import RequestOutputKind

    sampling = _sampling(tokens)
    sampling.output_kind = RequestOutputKind.DELTA
    return sampling


def _books(worker: Any) -> dict[str, Any]:
    runner = worker.model_runner
    pool = runner.memory.pool
    # As many granules in as many places, or it raises.
    pool.check_integrity()
    free, _ = torch.cuda.mem_get_info()
    return {
        "granules": pool.total,
        "free_granules": pool.free,
        "granule_bytes": pool.granule_bytes,
        "weight_bytes": runner.speculator.weight_bytes,
        "device_free_bytes": free,
        "host_bytes": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize(),
    }


if __name__ == "__main__":
    main(ElasticUnderTest)
