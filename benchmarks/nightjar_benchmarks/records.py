"""Recorded figures: `benchmarks/results/TOPIC.json`, one file per topic.

{command, commit, date, host, versions, figures: {name: {value, unit, raw}}}; `raw` is what the value was
computed from. A benchmark that measures some figures of a topic replaces those and keeps the others only
if they were measured at the same commit: one file never mixes two states of the code.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from nightjar_benchmarks.host import host, versions

RESULTS = Path("benchmarks") / "results"


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    value: float
    unit: str
    raw: Any = None


@dataclass(frozen=True)
class Record:
    """What one topic's benchmark measured, and where."""

    command: str
    commit: str
    date: str
    host: Mapping[str, Any]
    versions: Mapping[str, str]
    figures: Mapping[str, Figure] = field(default_factory=dict)


def measured(root: Path, command: str, figures: Mapping[str, Figure], now: datetime) -> Record:
    """A record of `figures`, just measured here. ValueError when tracked files differ from the commit."""
    return Record(command, clean_commit(root), now.isoformat(timespec="seconds"), host(), versions(), figures)


def write(root: Path, topic: str, record: Record) -> Path:
    """Write `record` under the repository `root`; figures of the same commit that it lacks are kept."""
    path = root / RESULTS / f"{topic}.json"
    kept = read(root, topic)
    if kept is not None and kept.commit == record.commit:
        figures = {**kept.figures, **record.figures}
        record = replace(record, command=all_commands(kept.command, record.command), figures=figures)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(record), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def all_commands(before: str, command: str) -> str:
    """What made a record that was measured in parts."""
    commands = before.split("; ")
    return before if command in commands else "; ".join([*commands, command])


def read(root: Path, topic: str) -> Record | None:
    """The record of `topic`, None when there is none; ValueError names the file when it is malformed."""
    path = root / RESULTS / f"{topic}.json"
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        figures = {name: Figure(**figure) for name, figure in found.pop("figures").items()}
        return Record(**found, figures=figures)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: a record of figures is required: {error}") from error


def head(root: Path) -> str | None:
    """The commit of a checkout without changes; None elsewhere."""
    try:
        return clean_commit(root)
    except (ValueError, OSError, subprocess.CalledProcessError):
        return None


def clean_commit(root: Path) -> str:
    """HEAD; ValueError when tracked files differ from it, results aside: a figure belongs to a commit."""
    changed = git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", f":(exclude){RESULTS}")
    if changed:
        raise ValueError(
            "a checkout that equals its commit is required to record figures; commit first, or measure in a fresh"
            f" clone; found changes:\n{changed}"
        )
    return git(root, "rev-parse", "HEAD")


def commits_behind(root: Path, commit: str) -> int | None:
    """How many commits HEAD is ahead of `commit`, results aside; None when it is no ancestor of HEAD."""
    try:
        git(root, "merge-base", "--is-ancestor", commit, "HEAD")
    except subprocess.CalledProcessError:
        return None
    return int(git(root, "rev-list", "--count", f"{commit}..HEAD", "--", ".", f":(exclude){RESULTS}"))


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments],  # noqa: S607 - git is found on PATH
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
