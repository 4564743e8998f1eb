#!/usr/bin/env python3
"""Elastic memory of a GPU engine: every figure of the topic `elastic`.

From the repository root, on a host with one H200, vLLM 0.32.0, and this repository installed:

    python3 benchmarks/gpu/elastic.py --commit $(git rev-parse HEAD)

What takes long, on the hosts seen: 10,000 cycles 220 s to 300 s, four runs over a saturated pool 110 s, and two
engines, one after the other, 60 s to 110 s each to start. So the parts may be measured in several calls.
"""

from typing import Any

import torch
from elastic_kernels import DRAFT, POOL_BLOCKS, TARGET, migration, remap
from topic import run

from nightjar_benchmarks.gpu_elastic import figures, measure
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


if __name__ == "__main__":
    run(
        "elastic",
        "benchmarks/gpu/elastic.py",
        __doc__,
        {
            "kernels": lambda _, note: note("kernels", kernels()),
            "pool": measure.pool,
            "cycles": measure.cycles,
        },
    )
