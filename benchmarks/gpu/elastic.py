#!/usr/bin/env python3
"""Elastic memory of a GPU engine: every figure of the topic `elastic`.

From the repository root, on a host with one H200, vLLM 0.32.0, and this repository installed:

    python3 benchmarks/gpu/elastic.py --commit $(git rev-parse HEAD)

Not run yet. What is meant to take long: 10,000 cycles some 140 s, four runs over a saturated pool some 25 s each, two
engines some 60 s each to start.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from device_time import record
from elastic_kernels import DRAFT, POOL_BLOCKS, TARGET, migration, remap

from nightjar_benchmarks.gpu_elastic import figures
from nightjar_benchmarks.gpu_elastic.measure import measure
from nightjar_benchmarks.records import Figure

OUT = Path("benchmarks") / "results" / "elastic.json"
REPEATS = 30


def kernels() -> dict[str, Figure]:
    size = POOL_BLOCKS * (TARGET.block + DRAFT.block)
    data = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
    migrations: list[dict[str, Any]] = migration(data, [256, 512, 1024], REPEATS)
    remaps = remap(REPEATS)
    del data
    torch.cuda.empty_cache()
    return figures.kernels(migrations, remaps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument("--out", type=Path, default=OUT, help=f"the record to write (default: {OUT})")
    parser.add_argument("--folder", type=Path, help="for models (16 GB) and logs (default: a temporary one)")
    options = parser.parse_args()
    found: dict[str, Figure] = {}
    started = time.monotonic()

    def note(what: str, measured: Mapping[str, Figure]) -> None:
        found.update(measured)
        # Whatever comes after, this was measured.
        made = {name: asdict(figure) for name, figure in found.items()}
        written = record("python3 benchmarks/gpu/elastic.py", options.commit, made)
        options.out.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        shown = ", ".join(f"{name} {figure.value} {figure.unit}" for name, figure in measured.items())
        print(f"{time.monotonic() - started:4.0f} s  {what}: {shown}", flush=True)

    note("kernels", kernels())
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, note)


if __name__ == "__main__":
    main()
