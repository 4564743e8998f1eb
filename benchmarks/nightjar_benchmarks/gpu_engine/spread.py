"""A sample in five numbers."""

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "median": round(statistics.median(ordered), 4),
        "p10": round(ordered[round(0.1 * last)], 4),
        "p90": round(ordered[round(0.9 * last)], 4),
        "max": round(ordered[-1], 4),
        "count": len(ordered),
    }
