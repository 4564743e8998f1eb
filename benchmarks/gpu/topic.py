#!/usr/bin/env python3
"""The command line of a benchmark that writes one topic's record, and writes it again after each part of it."""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from device_time import record

from nightjar_benchmarks.gpu_engine.measure import Note
from nightjar_benchmarks.records import Figure


def run(topic: str, script: str, description: str | None, measure: Callable[[Path, Note], None]) -> None:
    """`measure` gets a folder for models and logs, and a function for what it found."""
    out = Path("benchmarks") / "results" / f"{topic}.json"
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument("--out", type=Path, default=out, help=f"the record to write (default: {out})")
    parser.add_argument("--folder", type=Path, help="for models (16 GB) and logs (default: a temporary one)")
    options = parser.parse_args()
    found: dict[str, Figure] = {}
    started = time.monotonic()

    def note(what: str, figures: Mapping[str, Figure]) -> None:
        found.update(figures)
        # Whatever comes after, this was measured.
        measured = {name: asdict(figure) for name, figure in found.items()}
        written = record(f"python3 {script}", options.commit, measured)
        options.out.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        shown = ", ".join(f"{name} {figure.value} {figure.unit}" for name, figure in figures.items())
        print(f"{time.monotonic() - started:4.0f} s  {what}: {shown}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, note)
