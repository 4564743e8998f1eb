#!/usr/bin/env python3
"""The command line of a benchmark that writes one topic's record, and writes it again after each part of it."""

import argparse
import json
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from device_time import record

from nightjar_benchmarks.gpu_engine.measure import Note
from nightjar_benchmarks.records import Figure, all_commands

Measure = Callable[[Path, Note], None]


def run(topic: str, script: str, description: str | None, parts: Mapping[str, Measure]) -> None:
    """Each part gets a folder for models and logs, and a function for what it found.

    A part that fails leaves the others to be measured, and ends the program with 1.
    """
    options = _options(topic, description, list(parts))
    command = f"python3 {script} --parts {' '.join(options.parts)}"
    found, commands = _kept(options.out, options.commit, command)
    started = time.monotonic()

    def note(what: str, figures: Mapping[str, Figure]) -> None:
        found.update({name: asdict(figure) for name, figure in figures.items()})
        # Whatever comes after, this was measured.
        written = record(commands, options.commit, found)
        options.out.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        shown = ", ".join(f"{name} {figure.value} {figure.unit}" for name, figure in figures.items())
        print(f"{time.monotonic() - started:4.0f} s  {what}: {shown}", flush=True)

    failed = False
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in options.parts:
            try:
                parts[name](folder, note)
            except Exception:  # noqa: BLE001 - told at once, for the rest takes minutes
                failed = True
                traceback.print_exc()
    if failed:
        raise SystemExit(1)


def _options(topic: str, description: str | None, parts: list[str]) -> argparse.Namespace:
    out = Path("benchmarks") / "results" / f"{topic}.json"
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts, help="what to measure (default: all)")
    parser.add_argument("--commit", required=True, help="the commit that is measured")
    parser.add_argument(
        "--out",
        type=Path,
        default=out,
        help=f"the record to write (default: {out}); figures of the same commit that are in it stay",
    )
    parser.add_argument("--folder", type=Path, help="for models (16 GB) and logs (default: a temporary one)")
    return parser.parse_args()


def _kept(out: Path, commit: str, command: str) -> tuple[dict[str, Any], str]:
    """Figures of the same commit that are there already, and all that has made them and makes what is added."""
    before = json.loads(out.read_text(encoding="utf-8")) if out.exists() else None
    if before is None or before["commit"] != commit:
        return {}, command
    return before["figures"], all_commands(before["command"], command)
