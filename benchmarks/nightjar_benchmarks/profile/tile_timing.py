"""The kernels of a draft's pass, timed on this GPU tile by tile.

What is timed is one CUDA graph of launches one after another, each with weights or KV of its own, so that they come
from the device's memory, as they do in a pass. Kernels are compiled before, by as many processes as there are
processors, or fewer: each of them takes seconds.
"""

import math
import os
import statistics
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import torch
from triton import TritonError

from nightjar_benchmarks.profile.draft_shape import DraftShape, Matrix
from nightjar_benchmarks.profile.tile_search import Case, Part, Tile
from nightjar_engine_patch.gpu.pass_trial import alternating_us
from nightjar_kernels.draft_attention import Heads, Paged, attend, parts_of
from nightjar_kernels.greedy_head import best_of_head
from nightjar_kernels.small_linear import Norm, linear_add, norm_gate_up, norm_linear
from nightjar_kernels.tiles import DEFAULT, AttentionTile, HeadTile, ShareTile, Tiles

# More than what a device keeps of what it has read, and not more launches than a graph is made of in no time.
COLD_BYTES, MOST_COPIES = 256 << 20, 160
BLOCK_TOKENS, DTYPE = 16, torch.bfloat16
# Each takes more than a GiB of the host's memory.
MOST_PROCESSES = 8

Run = Callable[[], object]
Job = tuple[Part, Tile]


class Kernels:
    """Launches of a draft's kernels, on whatever weights; goes to another process without them."""

    def __init__(self, shape: DraftShape, device: str, multiprocessors: int) -> None:
        self._shape, self._device, self._multiprocessors = shape, device, multiprocessors
        self._matrices = {matrix.what: matrix for matrix in shape.matrices()}
        self._weights: dict[tuple[int, ...], torch.Tensor] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Kernels, (self._shape, self._device, self._multiprocessors)

    def refusal(self, job: Job) -> str | None:
        """Why a kernel does not compile, or does not fit into the device; None if it does."""
        try:
            self.runs(*job, copies=1)[0]()
            # Waits for the device, if there is one.
            torch.zeros((), device=self._device).item()
        except TritonError as error:
            return str(error)
        return None

    def runs(self, part: Part, tile: Tile, copies: int | None = None) -> list[Run]:
        """A launch with each of so many weights, or with as many as are cold."""
        tiles = with_tile(tile)
        if part.what == "attention":
            return self._attention(part, tiles, copies)
        if part.what == "head":
            return self._head(part, tiles, copies)
        return self._linear(self._matrices[part.what], part.tokens, tiles, copies)

    def _linear(self, matrix: Matrix, tokens: int, tiles: Tiles, copies: int | None) -> list[Run]:
        x, norm = self._made(tokens, matrix.inputs), self._norm(matrix.inputs)
        weights = self._cold(copies, matrix.outputs * (2 if matrix.gated else 1), matrix.inputs)
        if matrix.gated:
            return [partial(norm_gate_up, x, norm, weight, tiles) for weight in weights]
        if matrix.what == "qkv":
            bias = self._made(matrix.outputs)
            return [partial(norm_linear, x, norm, weight, bias, tiles) for weight in weights]
        residual = self._made(tokens, matrix.outputs)
        return [partial(linear_add, x, weight, residual, tiles) for weight in weights]

    def _head(self, part: Part, tiles: Tiles, copies: int | None) -> list[Run]:
        hidden = self._shape.hidden_size
        x, norm = self._made(part.tokens, hidden), self._norm(hidden)
        weights = self._cold(copies, self._shape.vocab_size, hidden)
        return [partial(best_of_head, x, norm, weight, tiles) for weight in weights]

    def _attention(self, part: Part, tiles: Tiles, copies: int | None) -> list[Run]:
        shape, context = self._shape, part.context
        kv, size = shape.kv_heads, shape.head_size
        heads = Heads(shape.num_attention_heads, kv, size, self._made(context, size))
        blocks = -(-context // BLOCK_TOKENS)
        # By token within a block, as the serving engine lays it out.
        caches = [cache.transpose(1, 2) for cache in self._cold(copies, blocks, BLOCK_TOKENS, kv, 2 * size)]
        table = torch.randperm(blocks, device=self._device).int()[None]
        paged = Paged(table, torch.full((1,), context, dtype=torch.int32, device=self._device))
        qkv = self._made(1, (heads.queries + 2 * kv) * size)
        parts = parts_of(1, kv, context, self._multiprocessors, tiles)
        return [partial(attend, qkv, heads, cache, paged, tokens=1, parts=parts, tiles=tiles) for cache in caches]

    def _cold(self, copies: int | None, *size: int) -> torch.Tensor:
        cold = -(-COLD_BYTES // (math.prod(size) * DTYPE.itemsize))
        whole = copies or min(cold, MOST_COPIES), *size
        if whole not in self._weights:
            self._weights[whole] = self._made(*whole)
        return self._weights[whole]

    def _made(self, *size: int) -> torch.Tensor:
        return torch.randn(*size, dtype=DTYPE, device=self._device) * size[-1] ** -0.5

    def _norm(self, size: int) -> Norm:
        return Norm(torch.ones(size, dtype=DTYPE, device=self._device), 1e-6)


def with_tile(tile: Tile) -> Tiles:
    """Tiles of which all that is looked at is `tile`."""
    if isinstance(tile, HeadTile | AttentionTile):
        return DEFAULT.model_copy(update={"head" if isinstance(tile, HeadTile) else "attention": tile})
    return DEFAULT.model_copy(update={"linear": (tile,)})


def jobs_of(case: Case, tile: Tile) -> list[Job]:
    """What is compiled for a candidate: to tensor cores, all numbers of tokens up to 8 are one."""
    if not isinstance(tile, ShareTile):
        return [(part, tile) for part in case.parts]
    return [(replace(part, tokens=max(8, part.tokens)), tile) for part in case.parts]


def compile_all(kernels: Kernels, jobs: Sequence[Job]) -> dict[Job, str]:
    """Leave every kernel in Triton's cache; those that do not run here, and why."""
    processes = min(len(os.sched_getaffinity(0)), MOST_PROCESSES)
    # A process that has used CUDA cannot be forked.
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        refusals = list(pool.map(kernels.refusal, jobs))
    return {job: refusal for job, refusal in zip(jobs, refusals, strict=True) if refusal is not None}


def time_case(kernels: Kernels, refused: Container[Job], case: Case) -> list[float | None]:
    """Microseconds of each candidate: of one launch of each part, all in turns."""
    tiles = [tile for tile in case.candidates if not any(job in refused for job in jobs_of(case, tile))]
    keys = [(tile, part) for tile in tiles for part in case.parts]
    runs = [kernels.runs(part, tile) for tile, part in keys]
    graphs = [_captured(launches) for launches in runs]
    times = alternating_us(lambda: None, [graph.replay for graph in graphs])
    total = dict.fromkeys(tiles, 0.0)
    for (tile, _), launches, us in zip(keys, runs, times, strict=True):
        total[tile] += statistics.median(us) / len(launches)
    return [round(total[tile], 3) if tile in total else None for tile in case.candidates]


def _captured(launches: Sequence[Run]) -> torch.cuda.CUDAGraph:
    # Loads the kernel, which a graph cannot do.
    launches[0]()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    return graph
