"""All measurements, one after another, on engines that are there at the same time and take turns."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nightjar_benchmarks.gpu_engine import figures
from nightjar_benchmarks.gpu_engine.pairs import BIG, SMALL, write_pair
from nightjar_benchmarks.gpu_engine.remote import Remote
from nightjar_benchmarks.pairs import Pair, expected_continuation
from nightjar_benchmarks.records import Figure

GAMMA_MAX = 3
# So many turns that the middle one means something: the host is shared, and turns of large batches vary by a third.
PROMPT, OUTPUT, TURNS = 128, 160, 7
WHOLE_RUNS = (1, 8, 64, 256)
STEADY = ((1, 3), (8, 3), (16, 3), (32, 3), (64, 1), (128, 1))
# 64 requests that speculate for a while, pause for a thousand tokens each, and return.
SWITCH_BATCH, SWITCH_PAUSE, SWITCH_OUTPUT = 64, 1000, 1400
STORIES, STORY_REQUESTS, STORY_OUTPUT = 4, 250, 80
STORY_LENGTHS = (3, 0, 5, 1, 0, 2, 4, 0)

Engines = Mapping[str, Remote]
Note = Callable[[str, Mapping[str, Figure]], None]
"""Takes every group of figures as soon as it is there."""


def measure(folder: Path, note: Note) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(1) as writer:
        big = writer.submit(write_pair, folder / "big", BIG)
        small_pair = write_pair(folder / "small", SMALL)
        small = _start(stack, "small", small_arguments(small_pair, folder), folder)
        pair = big.result()
        engines = {name: _start(stack, name, given, folder) for name, given in big_arguments(pair, folder).items()}
        small.receive()
        note("losslessness", lossless(small, small_pair))
        small.stop()
        for engine in engines.values():
            engine.receive()
        prompts = Prompts(pair)
        for batch in WHOLE_RUNS:
            note(f"γ = 0, batch {batch}", gamma0(engines, prompts, batch))
        for batch, gamma in STEADY:
            note(f"γ = {gamma}, batch {batch}", steady(engines, prompts, batch, gamma))
        note("whole runs against stock γ = 3", against_stock(engines, prompts))
        note("a return to speculation", switch(engines["nightjar"], prompts))


def _start(stack: ExitStack, name: str, arguments: dict[str, Any], folder: Path) -> Remote:
    engine = Remote(name, arguments, folder / f"{name}.log")
    stack.callback(engine.stop)
    return engine


def small_arguments(pair: Pair, folder: Path) -> dict[str, Any]:
    """So few blocks that requests are preempted."""
    common = _common(pair, max_num_seqs=64, max_model_len=1024, kv_gib=2) | {"num_gpu_blocks_override": 400}
    return common | _nightjar(pair, folder / "small.sock", max(STORY_LENGTHS))


def big_arguments(pair: Pair, folder: Path) -> dict[str, dict[str, Any]]:
    common = _common(pair, max_num_seqs=256, max_model_len=4096, kv_gib=12)
    speculative = {"method": "draft_model", "model": str(pair.draft), "num_speculative_tokens": GAMMA_MAX}
    return {
        "nightjar": common | _nightjar(pair, folder / "big.sock", GAMMA_MAX),
        "stock": common,
        "stock_gamma3": common | {"speculative_config": speculative},
    }


def _common(pair: Pair, max_num_seqs: int, max_model_len: int, kv_gib: int) -> dict[str, Any]:
    return {
        "model": str(pair.target),
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        # Four engines share the device, so none may look how much of it is free.
        "gpu_memory_utilization": 0.25,
        "kv_cache_memory_bytes": kv_gib << 30,
        "disable_log_stats": False,
    }


def _nightjar(pair: Pair, socket: Path, gamma_max: int) -> dict[str, Any]:
    return {
        "speculative_config": {
            "method": "draft_model",
            "model": str(pair.draft),
            "num_speculative_tokens": gamma_max,
        },
        "additional_config": {"nightjar": {"socket": str(socket)}},
    }


class Prompts:
    """Token ids of a pair's only region."""

    def __init__(self, pair: Pair) -> None:
        self._tokens = np.flatnonzero(pair.graph.regions == 0)

    def one(self, length: int, *seed: int) -> list[int]:
        tokens: list[int] = np.random.default_rng(seed).choice(self._tokens, length).tolist()
        return tokens

    def many(self, count: int, length: int, *seed: int) -> list[list[int]]:
        return [self.one(length, *seed, index) for index in range(count)]


def lossless(engine: Remote, pair: Pair) -> dict[str, Figure]:
    """Requests of which a third share most of their prompts, under plans that change every 20 steps."""
    prompts, stories, expected = Prompts(pair), [], []
    for number in range(STORIES):
        shared = prompts.one(96, number)
        made = prompts.many(STORY_REQUESTS, 128, number, 1)
        made = [shared + prompt[96:] if index % 3 == 0 else prompt for index, prompt in enumerate(made)]
        lengths = np.random.default_rng(number).permutation(STORY_LENGTHS * 6).tolist()
        story = {"prompts": made, "tokens": STORY_OUTPUT, "gamma": 2, "segments": [[one, 20] for one in lengths]}
        stories.append(engine.ask(**story, answers=True, rows=True))
        expected.append([expected_continuation(pair, prompt, STORY_OUTPUT) for prompt in made])
    return figures.losslessness(stories, expected)


def gamma0(engines: Engines, prompts: Prompts, batch: int) -> dict[str, Figure]:
    turns = take_turns(engines, {"stock": 0, "nightjar": 0}, prompts, batch, gamma=0)
    return {f"gamma0_vs_stock_b{batch}": figures.whole_run_ratio(turns, "nightjar", "stock")}


def steady(engines: Engines, prompts: Prompts, batch: int, gamma: int) -> dict[str, Figure]:
    turns = take_turns(engines, {"stock": 0, "nightjar": gamma}, prompts, batch, gamma)
    found = {f"gamma{gamma}_vs_no_draft_b{batch}": figures.steady_ratio(turns, gamma)}
    if batch == 1:
        found["draft_step_ms_b1"] = figures.draft_step(turns, gamma)
    return found


def against_stock(engines: Engines, prompts: Prompts) -> dict[str, Figure]:
    turns = take_turns(engines, {"stock_gamma3": 3, "nightjar": 3}, prompts, 1, gamma=3)
    return {"gamma3_vs_stock_gamma3_b1": figures.whole_run_ratio(turns, "nightjar", "stock_gamma3")}


def take_turns(
    engines: Engines, verify: Mapping[str, int], prompts: Prompts, batch: int, gamma: int
) -> list[dict[str, Any]]:
    """The same prompts to each engine, new ones each turn; the first turn warms up and is thrown away.

    verify: by engine, drafts that its steps verify
    """
    turns = []
    for turn in range(TURNS + 1):
        given = {"prompts": prompts.many(batch, PROMPT, batch, turn), "tokens": OUTPUT, "gamma": gamma}
        turns.append({name: engines[name].ask(**given, verify=drafts) for name, drafts in verify.items()})
    return turns[1:]


def switch(engine: Remote, prompts: Prompts) -> dict[str, Figure]:
    segments = [[GAMMA_MAX, 30], [0, SWITCH_PAUSE]]
    made = prompts.many(SWITCH_BATCH, PROMPT, 1)
    story = engine.ask(prompts=made, tokens=SWITCH_OUTPUT, gamma=GAMMA_MAX, segments=segments, rows=True)
    # The draft reads as many tokens of prompts.
    long = prompts.many(SWITCH_BATCH, SWITCH_PAUSE, 2)
    plain = engine.ask(prompts=long, tokens=8, gamma=GAMMA_MAX, rows=True)
    recovery = {"acceptance_recovery": figures.acceptance_recovery(story)}
    return recovery | figures.catch_up(story, plain)
