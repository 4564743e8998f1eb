#!/usr/bin/env python3
"""The fused draft pass: every figure of the topic `fused_draft`.

From the repository root, on a host with one H200, vLLM 0.32.0, and this repository installed:

    python3 benchmarks/gpu/fused_draft.py --commit $(git rev-parse HEAD)

First passes by themselves, at the shapes of real drafts. A pass is what a CUDA graph of it runs: the embedding, all
layers, the output matrix, the choice of the next token, and what the next pass reads. Its first two layers are checked
against the specification before anything is timed. The figures, each with the time that the draft's weights take at the
bandwidth of a device copy, and with the time and the bytes of each kernel:

pass_ms_b1, _b4, _b8   one token of each of so many requests, contexts of 512 tokens, 0.5B shape
pass_ms_b1_4k          one request with a context of 4,096 tokens

First passes (two tokens a request), batches of 2 and 16, a context of 32,768 tokens and the shapes of 0.6B and 1B
drafts are in the raw numbers. Then passes inside engines (`nightjar_benchmarks.gpu_fused`):

gamma3_vs_no_draft_b1, _b4, _b8  7B with 0.5B, steady steps against stock vLLM without a draft, in turns, at an
                                 acceptance length of 2.8
llama_1b_vs_vllm_pass, qwen3_06b_vs_vllm_pass
                                 vLLM's pass over ours at one request, as the engine timed both at its start
worst_vs_vllm_pass               over all sizes and kinds of pass, vLLM's over what an engine chose, by the times of
                                 another engine with the same shape of draft

What takes long: five engines, three of them with small targets, that start one after another, for nothing may run
while one of them times its passes; 8 turns of two engines at each of three batch sizes.
"""

import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from device_time import captured_us, queued_us, spread
from topic import run as run_topic

from nightjar_benchmarks.gpu_fused import measure
from nightjar_benchmarks.records import Figure
from nightjar_kernels.draft_attention import Heads, Paged, attend, parts_of
from nightjar_kernels.draft_inputs import Inputs, advance
from nightjar_kernels.draft_pass import Draft, Layer, run
from nightjar_kernels.greedy_head import best_of_head
from nightjar_kernels.small_linear import Norm, linear_add, norm_gate_up, norm_linear

BLOCK_TOKENS, DTYPE, REPEATS = 16, torch.bfloat16, 60


@dataclass(frozen=True)
class Shape:
    """A dense decoder, as published."""

    hidden: int
    intermediate: int
    layers: int
    queries: int
    kv: int
    head_size: int
    vocab_size: int
    has_bias: bool = False
    has_head_norms: bool = False


SHAPES = {
    "0.5B": Shape(896, 4864, 24, 14, 2, 64, 152064, has_bias=True),
    "0.6B": Shape(1024, 3072, 28, 16, 8, 128, 151936, has_head_norms=True),
    "1B": Shape(2048, 8192, 16, 32, 8, 64, 128256),
}


@dataclass(frozen=True)
class Case:
    """A batch in which every request has the same context."""

    shape: str
    rows: int
    context: int
    tokens: int = 1


FIGURES = {
    "pass_ms_b1": Case("0.5B", 1, 512),
    "pass_ms_b4": Case("0.5B", 4, 512),
    "pass_ms_b8": Case("0.5B", 8, 512),
    "pass_ms_b1_4k": Case("0.5B", 1, 4096),
}
OTHERS = [
    *(Case("0.5B", rows, 512, tokens=2) for rows in (1, 4, 8, 16)),
    *(Case("0.5B", rows, 512) for rows in (2, 16)),
    Case("0.5B", 1, 32768),
    *(Case(shape, rows, 512) for shape in ("0.6B", "1B") for rows in (1, 8)),
]


def random_draft(shape: Shape, device: str, positions: int) -> Draft:
    generator = torch.Generator(device).manual_seed(0)

    def made(*size: int) -> torch.Tensor:
        return (torch.randn(*size, generator=generator, device=device) * size[-1] ** -0.5).to(DTYPE)

    def norm(size: int) -> Norm:
        return Norm(torch.ones(size, dtype=DTYPE, device=device) + made(size), 1e-6)

    size, width = shape.head_size, (shape.queries + 2 * shape.kv) * shape.head_size
    rates = 1e6 ** (-torch.arange(0, size, 2, device=device) / size)
    angles = torch.arange(positions, device=device)[:, None] * rates
    rotary = torch.cat([angles.cos(), angles.sin()], dim=-1).to(DTYPE)
    layers = [
        Layer(
            norm(shape.hidden),
            made(width, shape.hidden),
            made(width) if shape.has_bias else None,
            Heads(
                shape.queries,
                shape.kv,
                size,
                rotary,
                *([norm(size), norm(size)] if shape.has_head_norms else [None, None]),
            ),
            made(shape.hidden, shape.queries * size),
            norm(shape.hidden),
            made(2 * shape.intermediate, shape.hidden),
            made(shape.hidden, shape.intermediate),
        )
        for _ in range(shape.layers)
    ]
    head = made(shape.vocab_size, shape.hidden)
    # Tied, as these models' are.
    return Draft(head, layers, norm(shape.hidden), head)


class Pass:
    """All that a pass reads and writes, and the pass itself."""

    def __init__(self, draft: Draft, case: Case, device: str, multiprocessors: int) -> None:
        self.draft, self.case = draft, case
        heads = draft.layers[0].heads
        blocks = -(-case.context // BLOCK_TOKENS)
        self.caches = [
            # By token within a block, as the serving engine lays it out.
            torch.randn(case.rows * blocks, BLOCK_TOKENS, heads.kv, 2 * heads.size, device=device)
            .to(DTYPE)
            .transpose(1, 2)
            for _ in draft.layers
        ]
        tables = torch.randperm(case.rows * blocks, device=device).reshape(case.rows, blocks).int()
        self.paged = Paged(tables, torch.full((case.rows,), case.context, dtype=torch.int32, device=device))
        self.parts = parts_of(case.rows, heads.kv, case.context, multiprocessors)
        tokens = case.rows * case.tokens
        self.ids = torch.randint(0, len(draft.head), (tokens,), dtype=torch.int32, device=device)
        self._positions = torch.full((tokens,), case.context - 1, device=device)
        self._drafts = torch.zeros(case.rows, 1, dtype=torch.int64, device=device)
        self._columns = torch.zeros(case.rows, dtype=torch.int32, device=device)
        self._following = Inputs(
            torch.zeros(case.rows, dtype=torch.int32, device=device),
            torch.zeros(case.rows, dtype=torch.int64, device=device),
            torch.zeros(case.rows, dtype=torch.int32, device=device),
        )

    def run(self) -> None:
        best = run(self.draft, self.ids, self.caches, self.paged, tokens=self.case.tokens, parts=self.parts)
        read = Inputs(self.ids, self._positions, self.paged.seq_lens)
        # Always the first column: a replay starts where the last one did.
        self._columns.zero_()
        advance(
            best, read, self._drafts, self._columns, self._following, self.case.context, first=self.case.tokens == 2
        )

    def kernels(self) -> Iterator[tuple[str, int, Callable[[], None]]]:
        """(name, bytes of weights or KV, run once for every layer): each layer's weights, so that none are cached."""
        draft, layers, tokens = self.draft, self.draft.layers, self.case.tokens
        heads = layers[0].heads
        x = draft.embedding[self.ids]
        qkv = norm_linear(x, layers[0].attention_norm, layers[0].qkv, layers[0].qkv_bias)
        attended = attend(qkv, heads, self.caches[0], self.paged, tokens=tokens, parts=self.parts)
        active = norm_gate_up(x, layers[0].mlp_norm, layers[0].gate_up)

        def each(function: Callable[[int, Layer], object]) -> Callable[[], None]:
            def work() -> None:
                for index, layer in enumerate(layers):
                    function(index, layer)

            return work

        def attention(index: int, layer: Layer) -> object:
            return attend(qkv, layer.heads, self.caches[index], self.paged, tokens=tokens, parts=self.parts)

        kv_bytes = self.case.rows * self.case.context * heads.kv * 2 * heads.size * DTYPE.itemsize
        yield (
            "qkv",
            layers[0].qkv.nbytes,
            each(lambda _, one: norm_linear(x, one.attention_norm, one.qkv, one.qkv_bias)),
        )
        yield "attention", kv_bytes, each(attention)
        yield "out", layers[0].attention_out.nbytes, each(lambda _, one: linear_add(attended, one.attention_out, x))
        yield "gate_up", layers[0].gate_up.nbytes, each(lambda _, one: norm_gate_up(x, one.mlp_norm, one.gate_up))
        yield "down", layers[0].down.nbytes, each(lambda _, one: linear_add(active, one.down, x))
        yield "head", draft.head.nbytes, each(lambda *_: best_of_head(x[tokens - 1 :: tokens], draft.norm, draft.head))


def check(draft: Draft, case: Case, multiprocessors: int) -> None:
    """Leaves the program when two layers and the output matrix are not what the specification says."""
    two = replace(draft, layers=draft.layers[:2])
    made = Pass(two, case, "cuda", multiprocessors)
    on_cpu = Pass(moved(two), case, "cpu", multiprocessors)
    on_cpu.caches = [cache.cpu() for cache in made.caches]
    on_cpu.paged = Paged(made.paged.tables.cpu(), made.paged.seq_lens.cpu())
    on_cpu.ids = made.ids.cpu()
    found, expected = (
        run(one.draft, one.ids, one.caches, one.paged, tokens=case.tokens, parts=one.parts) for one in (made, on_cpu)
    )
    scale = float(expected.logits.abs().max())
    wrong = float((found.logits.cpu() - expected.logits).abs().max())
    if not wrong < 0.03 * scale:
        sys.exit(f"{case}: a logit of up to {scale:.3g} is off by {wrong:.3g}: no figures")


def moved(draft: Draft) -> Draft:
    def norm(one: Norm | None) -> Norm | None:
        return one and Norm(one.weight.cpu(), one.eps)

    def layer(one: Layer) -> Layer:
        heads = replace(
            one.heads,
            rotary=one.heads.rotary.cpu(),
            query_norm=norm(one.heads.query_norm),
            key_norm=norm(one.heads.key_norm),
        )
        return Layer(
            norm(one.attention_norm),
            one.qkv.cpu(),
            None if one.qkv_bias is None else one.qkv_bias.cpu(),
            heads,
            one.attention_out.cpu(),
            norm(one.mlp_norm),
            one.gate_up.cpu(),
            one.down.cpu(),
        )

    head = draft.head.cpu()
    return Draft(head, [layer(one) for one in draft.layers], norm(draft.norm), head)


def measured(draft: Draft, case: Case, bytes_per_us: float, multiprocessors: int, repeats: int) -> dict[str, Any]:
    made = Pass(draft, case, "cuda", multiprocessors)
    times = [us / 1e3 for us in captured_us(made.run, 1, repeats)]
    kernels = [
        {
            "kernel": name,
            "bytes": size,
            "us": round(statistics.median(captured_us(work, 1, repeats)) / len(draft.layers), 3),
            "us_at_copy_bandwidth": round(size / bytes_per_us, 3),
        }
        for name, size, work in made.kernels()
    ]
    return {
        "case": vars(case),
        "parts": made.parts,
        "pass_ms": spread(times),
        "weight_bytes": draft.bytes_read(),
        "weights_at_copy_bandwidth_ms": round(draft.bytes_read() / bytes_per_us / 1e3, 4),
        "kernels": kernels,
    }


def copy_bytes_per_us(repeats: int) -> float:
    """Read and written, by a device copy of 1 GiB."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    (times,) = queued_us([lambda: target.copy_(source)], repeats)
    return 2 * source.nbytes / statistics.median(times)


def passes() -> dict[str, Figure]:
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    bytes_per_us = copy_bytes_per_us(REPEATS)
    rows: dict[Case, dict[str, Any]] = {}
    for name, shape in SHAPES.items():
        cases = [case for case in [*FIGURES.values(), *OTHERS] if case.shape == name]
        draft = random_draft(shape, "cuda", max(case.context for case in cases))
        for tokens in (1, 2):
            check(draft, Case(name, 3, 100, tokens), multiprocessors)
        for case in cases:
            rows[case] = measured(draft, case, bytes_per_us, multiprocessors, REPEATS)
            print(json.dumps(rows[case]), flush=True)
        del draft
    # The engines that follow look how much memory is free.
    torch.cuda.empty_cache()
    return {
        name: Figure(rows[case]["pass_ms"]["median"], "ms", list(rows.values()) if name == "pass_ms_b1" else rows[case])
        for name, case in FIGURES.items()
    }


if __name__ == "__main__":
    run_topic(
        "fused_draft",
        "benchmarks/gpu/fused_draft.py",
        __doc__,
        {
            "passes": lambda _, note: note("passes by themselves", passes()),
            "shapes": measure.shapes,
            "serving": measure.serving,
        },
    )
