"""Tables of measured step times: what a step takes by speculative length and decode batch."""

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.simulator.state import MAX_BATCH, MAX_GAMMA, MAX_TOKENS, Floats

SHIPPED = ("h200-7b", "a100-13b", "cpu-2core")


@dataclass(frozen=True)
class StepTimes:
    """Seconds of a step: `forward[γ, batch]` verifies γ drafts a request, `draft[γ, batch]` makes them.

    Everything is for `base_context` tokens a request; `kv_s` and `draft_kv_s` (a pass) are what one token of
    context more costs. A prompt token adds `prefill_s` once a pass is compute-bound; `by_tokens[n]` is a pass over n
    tokens, and prompts in a step cost what they add to that. Catch-up is `catch_up_start_s` a step and
    `catch_up_token_s` a token. `noise` is the relative spread of a step.
    """

    name: str
    kind: str
    gamma_max: int
    forward: Floats
    draft: Floats
    by_tokens: Floats
    prefill_s: float
    catch_up_start_s: float
    catch_up_token_s: float
    kv_s: float
    draft_kv_s: float
    base_context: float
    host_s: float
    noise: float

    def seconds(self, gamma: int, batch: int) -> float:
        """Of a whole round, the host's share included."""
        return float(self.forward[gamma, batch] + self.draft[gamma, batch]) + self.host_s


def load(name_or_path: str) -> StepTimes:
    """A shipped table by name, or a file; ConfigurationError says what is wrong where."""
    if name_or_path in SHIPPED:
        text = files("nightjar_benchmarks.simulator").joinpath(f"data/{name_or_path}.json").read_text("utf-8")
    else:
        try:
            text = Path(name_or_path).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"{name_or_path}: one of {', '.join(SHIPPED)} or a readable file of step times is required:"
                f" {error.strerror}"
            ) from error
    return parse(text, name_or_path)


def parse(text: str, source: str) -> StepTimes:
    """`source` is named in errors."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{source}: JSON is required: {error}") from error
    if not isinstance(document, Mapping):
        raise ConfigurationError(f"{source}: an object with rows is required, found {type(document).__name__}")
    rows = _rows(document, source)
    forward, draft = _grids(rows, source)
    prefill_s = _number(document, "prefill_us_per_token", source) * 1e-6
    return StepTimes(
        name=str(document.get("name", source)),
        kind=str(document.get("kind", "measured")),
        gamma_max=max(gamma for gamma, _ in rows),
        forward=forward,
        draft=draft,
        by_tokens=_by_tokens(rows, prefill_s),
        prefill_s=prefill_s,
        catch_up_start_s=_number(document, "catch_up_start_us", source) * 1e-6,
        catch_up_token_s=_number(document, "catch_up_us_per_token", source) * 1e-6,
        kv_s=_number(document, "kv_ns_per_token", source) * 1e-9,
        draft_kv_s=_number(document, "draft_kv_ns_per_token", source) * 1e-9,
        base_context=_number(document, "base_context", source),
        host_s=_number(document, "host_us", source) * 1e-6,
        noise=_number(document, "noise", source),
    )


def _number(document: Mapping[str, Any], key: str, source: str) -> float:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ConfigurationError(f"{source}: {key}: a number of at least 0 is required, found {value!r}")
    return float(value)


def _rows(document: Mapping[str, Any], source: str) -> dict[tuple[int, int], tuple[float, float]]:
    """(forward, draft) seconds by (γ, batch)."""
    listed = document.get("rows")
    if not isinstance(listed, list) or not listed:
        raise ConfigurationError(f"{source}: rows: a list of [gamma, batch, step_ms, draft_ms] is required")
    found = {}
    for number, row in enumerate(listed, 1):
        where = f"{source}: rows, entry {number}"
        if not isinstance(row, list) or len(row) != 4 or not all(isinstance(value, int | float) for value in row):
            raise ConfigurationError(f"{where}: [gamma, batch, step_ms, draft_ms] is required, found {row!r}")
        gamma, batch, step_ms, draft_ms = row
        if not (0 <= gamma <= MAX_GAMMA and 1 <= batch <= MAX_BATCH and 0 <= draft_ms < step_ms):
            raise ConfigurationError(
                f"{where}: gamma 0 … {MAX_GAMMA}, batch 1 … {MAX_BATCH} and 0 <= draft_ms < step_ms are required,"
                f" found {row!r}"
            )
        found[int(gamma), int(batch)] = ((step_ms - draft_ms) * 1e-3, draft_ms * 1e-3)
    return found


def _grids(rows: Mapping[tuple[int, int], tuple[float, float]], source: str) -> tuple[Floats, Floats]:
    """Both by [γ, batch]: linear between the measured batches, and between the measured lengths."""
    gammas = sorted({gamma for gamma, _ in rows})
    if gammas[0] != 0:
        raise ConfigurationError(f"{source}: rows: step times at gamma 0 are required, found gammas {gammas}")
    grids = np.zeros((2, MAX_GAMMA + 1, MAX_BATCH + 1))
    for part in (0, 1):
        lines = []
        for gamma in gammas:
            batches = sorted(batch for other, batch in rows if other == gamma)
            lines.append(_line(batches, [rows[gamma, batch][part] for batch in batches]))
        for gamma in range(MAX_GAMMA + 1):
            high = min(bisect_left(gammas, gamma), len(gammas) - 1)
            low = max(high - 1, 0) if gammas[high] != gamma else high
            span = gammas[high] - gammas[low]
            share = (gamma - gammas[low]) / span if span else 0.0
            grids[part, gamma] = lines[low] * (1 - share) + lines[high] * share
    return grids[0], grids[1]


def _by_tokens(rows: Mapping[tuple[int, int], tuple[float, float]], prefill_s: float) -> Floats:
    """Seconds of a pass over so many tokens: never falling; beyond the measured ones `prefill_s` a token."""
    least: dict[int, float] = {}
    for (gamma, batch), (forward, _) in rows.items():
        tokens = batch * (gamma + 1)
        least[tokens] = min(forward, least.get(tokens, forward))
    known = sorted(least)
    # A pass that a longer one undercuts met an accident (or a graph size that was not captured).
    seconds = np.minimum.accumulate([least[tokens] for tokens in reversed(known)])[::-1]
    grid = np.arange(MAX_TOKENS + 1, dtype=np.float64)
    curve: Floats = np.interp(grid, known, seconds)
    beyond = grid > known[-1]
    curve[beyond] = seconds[-1] + prefill_s * (grid[beyond] - known[-1])
    return curve


def _line(batches: Sequence[int], seconds: Sequence[float]) -> Floats:
    """Over batches 0 … MAX_BATCH; beyond the largest it goes on as between the last two."""
    grid = np.arange(MAX_BATCH + 1, dtype=np.float64)
    line: Floats = np.interp(grid, batches, seconds)
    if len(batches) > 1:
        slope = max(0.0, (seconds[-1] - seconds[-2]) / (batches[-1] - batches[-2]))
        beyond = grid > batches[-1]
        line[beyond] = seconds[-1] + slope * (grid[beyond] - batches[-1])
    return line
