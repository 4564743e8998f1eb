"""The figures of the topic `gpu_engine`, computed from what the engines answered."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nightjar_benchmarks.gpu_engine.watcher import STEP_FIELDS
from nightjar_benchmarks.records import Figure

# What the goals are stated for: tokens that a request gets a step, by drafts verified.
ACCEPTANCE_LENGTH = {1: 1.8, 3: 2.8}

Answer = Mapping[str, Any]
Turns = Sequence[Mapping[str, Answer]]
"""By turn, what each engine answered; the engines took turns with the same prompts."""


def whole_run_ratio(turns: Turns, ours: str, theirs: str) -> Figure:
    """Output tokens per second of whole runs: the median turn."""
    ratios = [_rate(turn[ours]) / _rate(turn[theirs]) for turn in turns]
    return Figure(round(statistics.median(ratios), 4), "×", {"by_turn": _rounded(ratios), "turns": list(turns)})


def steady_ratio(turns: Turns, gamma: int) -> Figure:
    """Tokens per second while all requests decode, at the acceptance length that the goals are stated for."""
    length = ACCEPTANCE_LENGTH[gamma]
    ratios = [length * _steady(turn["stock"]) / _steady(turn["nightjar"]) for turn in turns]
    last = turns[-1]
    parts = {name: last["nightjar"][name]["median"] for name in ("forward_ms", "draft_ms")}
    step, alone = _steady(last["nightjar"]), _steady(last["stock"])
    # Forward pass and drafts alone, and no other work between steps.
    limit = length * alone / sum(parts.values())
    raw = {
        "by_turn": _rounded(ratios),
        "acceptance_length": length,
        "measured_acceptance_length": [turn["nightjar"]["acceptance_length"] for turn in turns],
        "step_ms": step,
        "stock_step_ms": alone,
        "parts_ms": {**parts, "rest_ms": round(step - sum(parts.values()), 4)},
        "limit": round(limit, 4),
        "turns": list(turns),
    }
    return Figure(round(statistics.median(ratios), 4), "×", raw)


def draft_step(turns: Turns, gamma: int) -> Figure:
    passes = [turn["nightjar"]["draft_ms"]["median"] / gamma for turn in turns]
    return Figure(round(statistics.median(passes), 4), "ms", {"by_turn": _rounded(passes), "passes": gamma})


def losslessness(stories: Sequence[Answer], expected: Sequence[Sequence[Sequence[int]]]) -> dict[str, Figure]:
    """Of requests under plans that change all the time, how many got other tokens than the target's own."""
    pairs = [
        (got, wanted)
        for story, wants in zip(stories, expected, strict=True)
        for got, wanted in zip(story["answers"], wants, strict=True)
    ]
    raw = [{name: story[name] for name in ("seconds", "tokens", "steps", "preempted")} for story in stories]
    changes = [_changes(steps_of(story)) for story in stories]
    return {
        "lossless_requests": Figure(len(pairs), "requests", {"runs": raw, "changes_of_length": changes}),
        "mismatched_requests": Figure(sum(list(got) != list(wanted) for got, wanted in pairs), "requests", raw),
    }


def acceptance_recovery(story: Answer) -> Figure:
    """Share of first drafts accepted after a return to speculation over that share before it was left."""
    steps = steps_of(story)
    before, after = _around_the_pause(steps)
    shares = [_accepted_share(part) for part in (before, after)]
    return Figure(round(shares[1] / shares[0], 4), "×", {"share_before": shares[0], "share_after": shares[1]})


def catch_up(story: Answer, plain: Answer) -> dict[str, Figure]:
    """The price of a return to speculation.

    story: requests that speculate, pause and return; plain: as many tokens that the draft reads along with prompts
    """
    steps = steps_of(story)
    _, after = _around_the_pause(steps)
    catching = [step for step in after if step["catch_up_tokens"] and step["verified_tokens"]]
    # A step's own drafting and catching up, and the forward pass that verified for it.
    neighbours = [step for step in after[len(catching) + 4 : len(catching) + 24] if not step["catch_up_tokens"]]
    longest, usual = max(map(_busy_ms, catching)), statistics.median(map(_busy_ms, neighbours))
    spent = _per_token(after)
    reading = _per_token(steps_of(plain))
    return {
        "catch_up_step_ratio": Figure(
            round(longest / usual, 4), "×", {"longest_ms": longest, "neighbour_ms": usual, "steps": len(catching)}
        ),
        "catch_up_cost_ratio": Figure(
            round(spent["ms_per_1000_tokens"] / reading["ms_per_1000_tokens"], 4),
            "×",
            {"switch": spent, "plain_prefill": reading},
        ),
    }


def steps_of(story: Answer) -> list[dict[str, int]]:
    return [dict(zip(STEP_FIELDS, row, strict=True)) for row in story["rows"]]


def _around_the_pause(steps: Sequence[dict[str, int]]) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """The steps before the longest stretch without drafts, and those after it."""
    best, start = (0, 0), None
    for index, step in enumerate([*steps, {"gamma_drafted": 1}]):
        if step["gamma_drafted"] == 0:
            start = index if start is None else start
        elif start is not None:
            best, start = max(best, (start, index), key=lambda piece: piece[1] - piece[0]), None
    return list(steps[: best[0]]), list(steps[best[1] :])


def _accepted_share(steps: Iterable[dict[str, int]]) -> float:
    steps = list(steps)
    return sum(step["accepted_tokens"] for step in steps) / sum(step["verified_tokens"] for step in steps)


def _busy_ms(step: Mapping[str, int]) -> float:
    return (step["forward_ns"] + step["draft_ns"] + step["catch_up_ns"]) / 1e6


def _per_token(steps: Iterable[Mapping[str, int]]) -> dict[str, float]:
    steps = list(steps)
    tokens = sum(step["catch_up_tokens"] for step in steps)
    spent = sum(step["catch_up_ns"] for step in steps) / 1e6
    return {"tokens": tokens, "ms": round(spent, 3), "ms_per_1000_tokens": round(1000 * spent / tokens, 4)}


def _changes(steps: Sequence[Mapping[str, int]]) -> int:
    lengths = [step["gamma_drafted"] for step in steps]
    return sum(first != second for first, second in pairwise(lengths))


def _rate(answer: Answer) -> float:
    return float(answer["tokens"]) / float(answer["seconds"])


def _steady(answer: Answer) -> float:
    return float(answer["steady_ms"]["median"])


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 4) for value in values]
