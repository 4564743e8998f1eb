"""The measurements of the topic, each on an engine of its own."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from nightjar_benchmarks.gpu_elastic import figures
from nightjar_benchmarks.gpu_engine.measure import Note, Prompts
from nightjar_benchmarks.gpu_engine.pairs import BIG, SMALL, write_pair, write_shape
from nightjar_benchmarks.gpu_engine.remote import Remote
from nightjar_benchmarks.pairs import Pair, PairShape, expected_continuation
from nightjar_benchmarks.pairs.shapes import ModelShape
from nightjar_benchmarks.records import Figure

MODULE = "nightjar_benchmarks.gpu_elastic.under_test"
BLOCKS, BLOCK_TOKENS = 4112, 16  # the paper's pool
GAMMA_MAX = 3
# A batch that has some 500 blocks above the old end after so many steps, and room for what it has in all; it decodes
# for as long as three cycles take and a good part of a fourth.
BATCH, PROMPT, AWAY_STEPS, STALL_CYCLES, STALL_TOKENS = 64, 128, 140, 3, 880
COPIES = 20
# Requests of 64 blocks in the mean, so that some 64 fill the pool, each for 8 s: few enough that a step waits for the
# device, also where the host is slow. The pool is full when others begin to come, a fifth faster than it serves them,
# which is measured on the same host before.
SERVED_PROMPT, OUTPUT, OVERLOAD, SECONDS, TURNS = 512, 1024, 1.2, 20.0, 2
CAPACITY_REQUESTS, CAPACITY_SECONDS = 480, 20.0
# The calm requests need three quarters of the small pool, the crowd more than there is with all of the draft's memory.
CYCLES, SMALL_BLOCKS, CALM, CROWD, CYCLE_TOKENS = 10_000, 208, 12, 40, 80


def pool(folder: Path, note: Note) -> None:
    """A real pair over the paper's pool."""
    with ExitStack() as stack:
        pair = write_shape(folder / "big", BIG)
        given = arguments(pair, folder / "big.sock", BLOCKS, 256, 2048) | {"load_format": "dummy"}
        engine = _start(stack, "big", given, folder)
        engine.receive()
        prompts = Prompts(pair)
        note("changes under a steady batch", stalls(engine, prompts))
        note("a pool that is too small", saturation(engine, prompts))


def cycles(folder: Path, note: Note) -> None:
    """A small pair, as fast as memory can change hands."""
    with ExitStack() as stack:
        pair = write_pair(folder / "small", SMALL)
        engine = _start(stack, "small", arguments(pair, folder / "small.sock", SMALL_BLOCKS, 64, 1024), folder)
        engine.receive()
        note("cycles under load", endurance(engine, pair))


def _start(stack: ExitStack, name: str, given: dict[str, Any], folder: Path) -> Remote:
    engine = Remote(name, given, folder / f"{name}.log", module=MODULE)
    stack.callback(engine.stop)
    return engine


def arguments(pair: Pair, socket: Path, blocks: int, max_num_seqs: int, max_model_len: int) -> dict[str, Any]:
    return {
        "model": str(pair.target),
        "skip_tokenizer_init": True,
        "dtype": "bfloat16",
        "max_model_len": max_model_len,
        "max_num_seqs": max_num_seqs,
        "num_gpu_blocks_override": blocks,
        "kv_cache_memory_bytes": blocks * sum(block_bytes(pair.shape)),
        "gpu_memory_utilization": 0.5,
        "disable_log_stats": False,
        "speculative_config": {
            "method": "draft_model",
            "model": str(pair.draft),
            "num_speculative_tokens": GAMMA_MAX,
        },
        "additional_config": {"nightjar": {"socket": str(socket), "elastic": True}},
    }


def block_bytes(shape: PairShape) -> tuple[int, int]:
    """Of one block of the target and one of the draft: K and V of two bytes each."""

    def of(model: ModelShape) -> int:
        return BLOCK_TOKENS * model.layers * model.kv_heads * model.head_dim * 4

    return of(shape.target), of(shape.draft)


def endurance(engine: Remote, pair: Pair) -> dict[str, Figure]:
    prompts = Prompts(pair)
    shared = prompts.one(96, 1)
    loads = {
        name: [shared + prompt[96:] if index % 3 == 0 else prompt for index, prompt in enumerate(made)]
        for name, made in (("calm", prompts.many(CALM, PROMPT, 2)), ("crowd", prompts.many(CROWD, 3 * PROMPT, 3)))
    }
    answer = engine.ask(do="cycles", **loads, tokens=CYCLE_TOKENS, cycles=CYCLES)
    expected = {
        name: [expected_continuation(pair, prompt, CYCLE_TOKENS) for prompt in made] for name, made in loads.items()
    }
    return figures.endurance(answer, expected)


def stalls(engine: Remote, prompts: Prompts) -> dict[str, Figure]:
    """The first answer warms up and is thrown away."""
    command = {"do": "stalls", "cycles": STALL_CYCLES, "away_steps": AWAY_STEPS, "tokens": STALL_TOKENS}
    answers = [engine.ask(**command, prompts=prompts.many(BATCH, PROMPT, 4, turn)) for turn in range(2)]
    copies = engine.ask(do="copy_bandwidth", size=answers[1]["books"]["weight_bytes"], repeats=COPIES)
    found = figures.capacity(answers[1], BLOCKS, *block_bytes(BIG))
    return found | figures.stalls(answers[1]) | figures.reload(answers[1], copies)


def saturation(engine: Remote, prompts: Prompts) -> dict[str, Figure]:
    capacity = engine.ask(
        do="capacity",
        prompts=prompts.many(CAPACITY_REQUESTS, SERVED_PROMPT, 6),
        tokens=OUTPUT,
        seconds=CAPACITY_SECONDS,
    )
    rate = OVERLOAD * capacity["requests_per_s"]
    turns = []
    for turn in range(TURNS):
        gaps = np.random.default_rng(turn).exponential(1 / rate, round(rate * SECONDS))
        arrivals = [0.0] * capacity["running"] + np.cumsum(gaps).tolist()
        made = prompts.many(len(arrivals), SERVED_PROMPT, 5, turn)
        given = {"do": "serve", "prompts": made, "tokens": OUTPUT, "arrivals": arrivals}
        turns.append({name: engine.ask(**given, elastic=name == "elastic") for name in ("fixed", "elastic")})
    return figures.saturation(turns, capacity)
