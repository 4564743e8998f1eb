"""The figures of the topic `elastic`, computed from what the engine answered."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nightjar_benchmarks.gpu_engine.spread import spread
from nightjar_benchmarks.records import Figure

Answer = Mapping[str, Any]
# Of a step of `stalls`.
LAUNCHED, STARTED, TOOK = range(3)
# The host is so many steps ahead of the device, and a step's own start lies behind what its directive did.
AHEAD = 2
_KINDS = ("expand", "squeeze")


def capacity(answer: Answer, blocks: int, target_block: int, draft_block: int) -> dict[str, Figure]:
    """Blocks that the target gained, and what that is short of all the draft had.

    blocks: without expansion; target_block, draft_block: bytes of one
    """
    books = answer["books"]
    most = max(change["blocks"] for change in answer["changes"])
    ideal = (books["weight_bytes"] + blocks * draft_block) // target_block
    short = max(ideal - (most - blocks), 0) * target_block / books["granule_bytes"]
    raw = {"blocks": blocks, "most": most, "ideal_gain": ideal, "granule_bytes": books["granule_bytes"]}
    return {
        "capacity_gain_blocks": Figure(most - blocks, "blocks", raw),
        "capacity_shortfall_granules": Figure(round(short, 3), "granules", raw),
    }


def stalls(answer: Answer) -> dict[str, Figure]:
    """What the longest step near a change takes more than the median of those far from all."""
    steps, changes = answer["steps"], answer["changes"]
    near = {kind: [_near(steps, change) for change in changes if change["kind"] == kind] for kind in _KINDS}
    touched = {index for found in near.values() for indices in found for index in indices}
    quiet = [step[TOOK] for index, step in enumerate(steps) if index not in touched]
    usual = statistics.median(quiet)
    return {
        f"{kind}_stall_ms": Figure(
            round(max(steps[index][TOOK] for indices in found for index in indices) - usual, 4),
            "ms",
            {
                "quiet_ms": spread(quiet),
                "longest_ms": [round(max(steps[index][TOOK] for index in indices), 4) for indices in found],
                "changes": [change for change in changes if change["kind"] == kind],
            },
        )
        for kind, found in near.items()
    }


def reload(answer: Answer, copies: Answer) -> dict[str, Figure]:
    """The draft's weights on their way back: as fast as any pinned copy, and beside the steps."""
    size = answer["books"]["weight_bytes"]
    rates = [size / (end - start) / 1e6 for start, end in answer["reloads"]]
    copy = statistics.median(copies["gb_s"])
    beside = [step[TOOK] for step in answer["steps"] if _is_beside(step, answer["reloads"])]
    alone = [step[TOOK] for step in answer["steps"] if not _is_beside(step, answer["reloads"])]
    ratio = statistics.median(beside) / statistics.median(alone)
    return {
        "reload_vs_copy_bandwidth": Figure(
            round(statistics.median(rates) / copy, 4),
            "×",
            {"reload_gb_s": spread(rates), "copy_gb_s": spread(copies["gb_s"]), "bytes": size},
        ),
        "reload_step_slowdown": Figure(
            round(ratio, 4), "×", {"beside_ms": spread(beside), "alone_ms": spread(alone), "by": "medians"}
        ),
    }


def saturation(turns: Sequence[Mapping[str, Answer]], capacity: Answer) -> dict[str, Figure]:
    """Medians over turns: the same requests at the same times, with elastic memory and without.

    ValueError when the requests did not suffice to measure the pool's capacity by, which is what they come faster than.
    """
    if not capacity["still_waiting"]:
        raise ValueError(f"a pool that requests wait for all the time is required, found {capacity}")
    first = [_median_ttft(turn["elastic"]) / _median_ttft(turn["fixed"]) for turn in turns]
    rates = [_rate(turn["elastic"]) / _rate(turn["fixed"]) for turn in turns]
    raw = [
        {
            name: {"ttft_s": spread(answer["ttft_s"]), "tokens_per_s": round(_rate(answer), 1)}
            | {"changes": answer.get("changes", [])}
            for name, answer in turn.items()
        }
        for turn in turns
    ]
    return {
        "ttft_p50_ratio": Figure(
            round(statistics.median(first), 4), "×", {"by_turn": first, "turns": raw, "fixed_pool": capacity}
        ),
        "tokens_ratio": Figure(round(statistics.median(rates), 4), "×", {"by_turn": rates, "turns": raw}),
    }


def endurance(answer: Answer, expected: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, Figure]:
    """Cycles under load, the answers against the target's own, and the books after the last cycle.

    expected: by kind of load, the target's own tokens for each prompt
    """
    wrong = sum(
        list(got) != list(wanted)
        for name, answers in answer["answers"].items()
        for got, wanted in zip(answers, expected[name], strict=True)
    )
    raw = {
        name: answer[name]
        for name in ("requests", "different", "refusals", "moved_blocks", "preempted", "samples", "books")
    }
    # The draft is back, so all granules are somebody's; the books themselves were checked by who answered.
    leaked = answer["books"]["free_granules"] + answer["samples"][0]["granules"] - answer["books"]["granules"]
    return {
        "cycles": Figure(answer["cycles"], "cycles", raw),
        "mismatched_requests": Figure(answer["different"] + wrong, "requests", {"wrong_at_first": wrong}),
        "leaked_granules": Figure(leaked, "granules", {"books": answer["books"]}),
    }


def kernels(migrations: Iterable[Mapping[str, Any]], remaps: Iterable[Mapping[str, Any]]) -> dict[str, Figure]:
    """As `benchmarks/gpu/elastic_kernels.py` measures them."""
    migrations, remaps = list(migrations), list(remaps)
    return {
        "migration_vs_copy_bandwidth": Figure(
            min(row["ratio"] for row in migrations if row["blocks"] >= 256), "×", migrations
        ),
        "remap_us": Figure(
            max(row[kind]["median"] for row in remaps for kind in ("queued_us", "captured_us")), "µs", remaps
        ),
    }


def _near(steps: Sequence[Sequence[float]], change: Mapping[str, Any]) -> list[int]:
    """Indices of the steps that the device may have done while the change was under way."""
    inside = [i for i, step in enumerate(steps) if change["begun"] <= step[LAUNCHED] <= change["ended"]]
    if not inside:
        # Shorter than a step.
        inside = [min(range(len(steps)), key=lambda i: abs(steps[i][LAUNCHED] - change["begun"]))]
    return list(range(max(inside[0] - AHEAD, 0), min(inside[-1] + AHEAD + 1, len(steps))))


def _is_beside(step: Sequence[float], reloads: Iterable[Sequence[float]]) -> bool:
    """For the better part of it."""
    begun, ended = step[STARTED], step[STARTED] + step[TOOK]
    return any(2 * (min(end, ended) - max(start, begun)) > step[TOOK] for start, end in reloads)


def _median_ttft(answer: Answer) -> float:
    return float(statistics.median(answer["ttft_s"]))


def _rate(answer: Answer) -> float:
    return float(answer["tokens"]) / float(answer["seconds"])
