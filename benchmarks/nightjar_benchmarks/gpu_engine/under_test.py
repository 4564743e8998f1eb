"""One vLLM engine in this process, told what to do by JSON lines on standard input; it answers in the same way."""

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from nightjar_benchmarks.gpu_engine.control import Control
from nightjar_benchmarks.gpu_engine.remote import FAILED
from nightjar_benchmarks.gpu_engine.spread import spread
from nightjar_benchmarks.gpu_engine.watcher import STEP_FIELDS


class Steps:
    """Marks on the device at the start of each step, and what was scheduled for it; also for stock vLLM."""

    def __init__(self) -> None:
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner

        self.seen: list[tuple[int, int, Any, float]] = []
        original = GPUModelRunner.execute_model

        def execute_model(runner: Any, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            tokens = scheduler_output.total_num_scheduled_tokens
            self.seen.append((len(scheduler_output.num_scheduled_tokens), tokens, event, time.monotonic()))
            return original(runner, scheduler_output, *args, **kwargs)

        GPUModelRunner.execute_model = execute_model

    def steady_ms(self, batch: int, tokens: int) -> list[float]:
        """From each start of a step of so many requests and tokens to the next such start."""
        torch.cuda.synchronize()
        return [
            first[2].elapsed_time(second[2])
            for first, second in pairwise(self.seen)
            if first[:2] == second[:2] == (batch, tokens)
        ]


class EngineUnderTest:
    """vLLM, stock or with the plugin, in this process."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.steps = Steps()
        from vllm import LLM

        started = time.monotonic()
        self.llm = LLM(**arguments)
        self.start_seconds = time.monotonic() - started
        nightjar = (arguments.get("additional_config") or {}).get("nightjar")
        self.control = Control(nightjar["socket"]) if nightjar else None

    def run(self, command: dict[str, Any]) -> dict[str, Any]:
        """What the method gives that the command names by `do`."""
        do: Callable[..., dict[str, Any]] = getattr(self, command.pop("do", "generate"))
        return do(**command)

    def generate(self, **command: Any) -> dict[str, Any]:
        """Serve `prompts` at once, `tokens` each, under a plan of `segments` that holds `gamma` after them.

        verify: drafts that each step of a steady batch verifies; answers: whether token ids are wanted;
        rows: whether every step is
        """
        from vllm import SamplingParams

        prompts, tokens, gamma = command["prompts"], command["tokens"], command.get("gamma", 0)
        if self.control is not None:
            self.control.take()
            self.control.plan(command.get("segments", []), gamma)
        sampling = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
        self.steps.seen.clear()
        started = time.monotonic()
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(given, sampling, use_tqdm=False)
        seconds = time.monotonic() - started
        found: dict[str, Any] = {"seconds": seconds, "tokens": tokens * len(prompts), "steps": len(self.steps.seen)}
        if steady := self.steps.steady_ms(len(prompts), len(prompts) * (command.get("verify", gamma) + 1)):
            found["steady_ms"] = spread(steady)
        if command.get("answers"):
            found["answers"] = [list(output.outputs[0].token_ids) for output in outputs]
        if self.control is not None:
            rows = self.control.take()
            found |= {"preempted": self._preempted(), "rows": rows if command.get("rows") else []}
            found |= steady_parts(rows, len(prompts), gamma)
        return found

    def close(self) -> None:
        if self.control is not None:
            self.control.close()

    def _preempted(self) -> int:
        """Since the engine started."""
        metrics = self.llm.get_metrics()
        return sum(int(metric.value) for metric in metrics if metric.name == "vllm:num_preemptions")


def steady_parts(rows: list[list[int]], batch: int, gamma: int) -> dict[str, Any]:
    """Where the time of the steps goes in which all requests decode and verify `gamma` drafts."""
    steps = [dict(zip(STEP_FIELDS, row, strict=True)) for row in rows]
    full = [
        step
        for step in steps
        if (step["decode_batch"], step["prefill_tokens"], step["verified_tokens"]) == (batch, 0, batch * gamma)
    ]
    # The last ones verify for requests that end.
    full = full[:-2]
    if not full:
        return {}
    return {
        "acceptance_length": sum(step["emitted_tokens"] for step in full) / (len(full) * batch),
        "draft_ms": spread([step["draft_ns"] / 1e6 for step in full]),
        "forward_ms": spread([step["forward_ns"] / 1e6 for step in full]),
        "overhead_us": spread([step["overhead_ns"] / 1e3 for step in full]),
    }


def main(make: type[EngineUnderTest] = EngineUnderTest) -> None:
    """Answer every command until there are no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arguments", type=json.loads, required=True, help="vLLM's engine arguments, as JSON")
    # vLLM and its libraries print to where one would answer.
    parser.add_argument("--answers", type=Path, required=True, help="where answers are written to")
    options = parser.parse_args()
    # The engine's core in this process: its steps are marked.
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    with options.answers.open("w") as answers:
        engine = make(options.arguments)
        print(json.dumps({"start_seconds": engine.start_seconds}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(_answer(engine, json.loads(line))), file=answers, flush=True)
        engine.close()


def _answer(engine: EngineUnderTest, command: dict[str, Any]) -> dict[str, Any]:
    """The engine goes on whatever became of one measurement."""
    try:
        return engine.run(command)
    except Exception:  # noqa: BLE001 - raised again by who asked
        return {FAILED: traceback.format_exc()}


if __name__ == "__main__":
    main()
