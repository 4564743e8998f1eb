#!/usr/bin/env python3
"""The GPU engine against stock vLLM: every figure of the topic `gpu_engine`.

From the repository root, on a host with one H200, vLLM 0.32.0, and this repository installed:

    python3 benchmarks/gpu/engine.py --commit $(git rev-parse HEAD)
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from device_time import record

from nightjar_benchmarks.gpu_engine.measure import measure
from nightjar_benchmarks.records import Figure

OUT = Path("benchmarks") / "results" / "gpu_engine.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument("--out", type=Path, default=OUT, help=f"the record to write (default: {OUT})")
    parser.add_argument("--folder", type=Path, help="for models (16 GB) and logs (default: a temporary one)")
    options = parser.parse_args()
    found: dict[str, Figure] = {}
    started = time.monotonic()

    def note(what: str, figures: Mapping[str, Figure]) -> None:
        found.update(figures)
        # Whatever comes after, this was measured.
        measured = {name: asdict(figure) for name, figure in found.items()}
        written = record("python3 benchmarks/gpu/engine.py", options.commit, measured)
        options.out.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        shown = ", ".join(f"{name} {figure.value} {figure.unit}" for name, figure in figures.items())
        print(f"{time.monotonic() - started:4.0f} s  {what}: {shown}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, note)


if __name__ == "__main__":
    main()
