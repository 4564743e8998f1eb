#!/usr/bin/env python3
"""Elastic memory of a GPU engine: every figure of the topic `elastic`.

From the repository root, on a host with one H200, vLLM 0.32.0, and this repository installed:

    python3 benchmarks/gpu/elastic.py --commit $(git rev-parse HEAD)

What takes long: 10,000 cycles some 140 s, four runs over a saturated pool some 25 s each, two
engines some 60 s each to start.
"""

from pathlib import Path
from typing import Any

import torch
from elastic_kernels import DRAFT, POOL_BLOCKS, TARGET, migration, remap
from topic import run

from nightjar_benchmarks.gpu_elastic import figures
from nightjar_benchmarks.gpu_elastic.measure import measure
from nightjar_benchmarks.gpu_engine.measure import Note
from nightjar_benchmarks.records import Figure

REPEATS = 30


def kernels() -> dict[str, Figure]:
    size = POOL_BLOCKS * (TARGET.block + DRAFT.block)
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
    migrations: list[dict[str, Any]] = migration(data, [256, 512, 1024], REPEATS)
    remaps = remap(REPEATS)
    del data
    torch.cuda.empty_cache()
    return figures.kernels(migrations, remaps)


def measure_all(folder: Path, note: Note) -> None:
    note("kernels", kernels())
    measure(folder, note)


if __name__ == "__main__":
    run("elastic", "benchmarks/gpu/elastic.py", __doc__, measure_all)
