"""Step reports as a file, one JSON object a line, and from a running engine."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from google.protobuf import json_format

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_api.errors import ConfigurationError
from nightjar_sidecar.engine_client import EngineClient


def read(path: Path) -> list[StepReport]:
    """ConfigurationError names the line that is no step report."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: a readable file of step reports is required: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json_format.Parse(line, StepReport()))
        except json_format.ParseError as error:
            raise ConfigurationError(
                f"{path}, line {number}: a step report as JSON is required, found {line[:60]!r}: {error}"
            ) from error
    return found


def write(path: Path, reports: Iterable[StepReport]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for report in reports:
            file.write(json_format.MessageToJson(report, indent=None) + "\n")


async def watch(socket: Path, seconds: float) -> list[StepReport]:
    """All reports of the engine behind `socket` for so long; EngineAway when it is not there."""
    found: list[StepReport] = []
    async with EngineClient(socket) as engine:
        await engine.info()
        try:
            async with asyncio.timeout(seconds):
                async for batch in engine.steps(observe=True):
                    found.extend(batch.reports)
        except TimeoutError:
            pass
    return found
