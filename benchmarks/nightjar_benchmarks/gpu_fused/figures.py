"""The figures of the topic `fused_draft` that compare with vLLM, computed from what engines answered."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nightjar_benchmarks.gpu_engine import figures
from nightjar_benchmarks.records import Figure

# What a draft that is right less often gives with three drafts; reported beside the figure at the goals' length.
LOWER_ACCEPTANCE_LENGTH = 2.4

Answer = Mapping[str, Any]
"""Of `FusedUnderTest.passes`."""


def steady(turns: figures.Turns) -> Figure:
    """γ = 3 against stock vLLM without a draft, steady decode."""
    found = figures.steady_ratio(turns, 3)
    lower = round(found.value * LOWER_ACCEPTANCE_LENGTH / figures.ACCEPTANCE_LENGTH[3], 4)
    return replace(found, raw=found.raw | {f"at_acceptance_length_{LOWER_ACCEPTANCE_LENGTH}": lower})


def against_vllms_pass(answer: Answer) -> Figure:
    """A further pass of one request with a short context: vLLM's time over ours, both in graphs of one process."""
    (short,) = (row for row in _passes(answer) if _key(row) == (1, 1, False))
    return Figure(round(short["vllm_us"] / short["fused_us"], 4), "×", answer)


def worst_of_the_choice(chosen: Answer, again: Answer) -> Figure:
    """Over all sizes and kinds of pass: vLLM's time over that of what was chosen, the times from another start.

    The times that a choice was made by can only say that it was right.
    """
    times = {_key(row): row for row in _passes(again)}
    ratios = [
        {**row, "ratio": round(times[_key(row)]["vllm_us"] / times[_key(row)][f"{row['path']}_us"], 4)}
        for row in _passes(chosen)
        if _key(row) in times
    ]
    if not ratios:
        raise ValueError(f"sizes that both engines timed are required, found {list(times)} the second time")
    return Figure(min(one["ratio"] for one in ratios), "×", {"chosen": ratios, "again": again})


def _passes(answer: Answer) -> Sequence[Mapping[str, Any]]:
    """ValueError with the engine's reason where there are none."""
    rows: Sequence[Mapping[str, Any]] = answer["passes"]
    if not rows:
        raise ValueError(f"an engine that timed both passes is required, found: {answer['refusal']}")
    return rows


def _key(row: Mapping[str, Any]) -> tuple[int, int, bool]:
    return row["requests"], row["tokens"], row["long_contexts"]
