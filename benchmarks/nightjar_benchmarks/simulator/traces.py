"""Traces as people have them, told apart by their header.

* Azure LLM inference: CSV `TIMESTAMP,ContextTokens,GeneratedTokens`, wall-clock times.
* BurstGPT: CSV `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type` (2023 files; later ones add
  columns), seconds.
* Mooncake: JSON lines with `timestamp` (milliseconds), `input_length`, `output_length`.
* Plain: CSV `time,prompt_tokens,output_tokens`, seconds.

Times count from the first request. Requests that put out nothing (failed ones, in BurstGPT) are left out.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.simulator.arrivals import Chunk
from nightjar_benchmarks.simulator.lengths import REGIONS
from nightjar_benchmarks.simulator.state import CHUNK

_PIECE = CHUNK // 4
CHAT = list(REGIONS).index("chat")


class TraceRequest(NamedTuple):
    """One line: seconds, tokens."""

    time: float
    prompt: int
    output: int


class _Format(NamedTuple):
    name: str
    columns: tuple[str, str, str]
    time: Callable[[str], float]


def _azure_time(text: str) -> float:
    # Seven digits of a second's fraction, which datetime does not take.
    head, _, fraction = text.strip().partition(".")
    return datetime.fromisoformat(head).timestamp() + float(f"0.{fraction or 0}")


_CSV_FORMATS = (
    _Format("Azure LLM inference", ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure_time),
    _Format("BurstGPT", ("Timestamp", "Request tokens", "Response tokens"), float),
    _Format("plain", ("time", "prompt_tokens", "output_tokens"), float),
)
_KNOWN = (
    "TIMESTAMP,ContextTokens,GeneratedTokens (Azure LLM inference); Timestamp,…,Request tokens,Response tokens,…"
    " (BurstGPT); time,prompt_tokens,output_tokens; or JSON lines with timestamp, input_length, output_length"
    " (Mooncake)"
)


def read(path: Path) -> list[TraceRequest]:
    """All requests, first at 0 s; ConfigurationError names the file, the line and the reason."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            requests = _shifted(list(_parse(file, str(path))), str(path))
    except OSError as error:
        raise ConfigurationError(f"{path}: a readable trace is required: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: text in UTF-8 is required: {error}") from error
    return requests


def chunks(requests: Sequence[TraceRequest], speed: float = 1.0) -> Iterator[Chunk]:
    """For the simulator; `speed` 2 plays twice as fast. Content is not told, so all is "chat"."""
    for start in range(0, len(requests), _PIECE):
        times, prompts, outputs = zip(*requests[start : start + _PIECE], strict=True)
        yield Chunk(
            np.array(times) / speed,
            np.array(prompts, np.int64),
            np.array(outputs, np.int64),
            np.full(len(times), CHAT, np.int64),
        )


def _parse(lines: Iterable[str], source: str) -> Iterator[TraceRequest]:
    numbered = enumerate(lines, 1)
    first = next(((number, line) for number, line in numbered if line.strip()), None)
    if first is None:
        raise ConfigurationError(f"{source}: a trace with a header is required, found an empty file")
    number, header = first
    if header.lstrip().startswith("{"):
        yield from _mooncake([first, *numbered], source)
        return
    columns = [name.strip() for name in next(csv.reader([header]))]
    known = next((form for form in _CSV_FORMATS if set(form.columns) <= set(columns)), None)
    if known is None:
        raise ConfigurationError(
            f"{source}, line {number}: one of these headers is required: {_KNOWN}; found {header!r}"
        )
    places = [columns.index(name) for name in known.columns]
    for number, line in numbered:
        if not line.strip():
            continue
        cells = next(csv.reader([line]))
        if len(cells) <= max(places):
            raise ConfigurationError(
                f"{source}, line {number}: {len(columns)} columns ({known.name}) are required, found {len(cells)}"
            )
        values = [cells[place] for place in places]
        request = _request(values, known.time, f"{source}, line {number}", known.columns)
        if request.output > 0:
            yield request


def _mooncake(numbered: Iterable[tuple[int, str]], source: str) -> Iterator[TraceRequest]:
    keys = ("timestamp", "input_length", "output_length")
    for number, line in numbered:
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ConfigurationError(f"{where}: a JSON object is required: {error}") from error
        if not isinstance(record, dict) or not set(keys) <= record.keys():
            raise ConfigurationError(f"{where}: an object with {', '.join(keys)} is required, found {line.strip()!r}")
        request = _request([str(record[key]) for key in keys], lambda text: float(text) / 1e3, where, keys)
        if request.output > 0:
            yield request


def _request(values: Sequence[str], time: Callable[[str], float], where: str, names: Sequence[str]) -> TraceRequest:
    try:
        seconds, prompt, output = time(values[0]), int(values[1]), int(values[2])
    except ValueError as error:
        raise ConfigurationError(
            f"{where}: a time and two whole numbers ({', '.join(names)}) are required, found {', '.join(values)}"
        ) from error
    if not np.isfinite(seconds) or prompt < 1 or output < 0:
        raise ConfigurationError(
            f"{where}: a finite time, at least 1 prompt token and at least 0 output tokens are required,"
            f" found {', '.join(values)}"
        )
    return TraceRequest(seconds, prompt, output)


def _shifted(requests: list[TraceRequest], source: str) -> list[TraceRequest]:
    if not requests:
        raise ConfigurationError(f"{source}: at least one request that puts out tokens is required, found none")
    requests.sort(key=lambda request: request.time)
    start = requests[0].time
    return [request._replace(time=request.time - start) for request in requests]
