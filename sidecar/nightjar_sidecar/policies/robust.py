"""Statistics that a compilation or a garbage collection in the middle of a step does not move."""

from collections.abc import Iterable
from itertools import islice


def location(values: Iterable[float]) -> float:
    """The mean of the middle half: as sturdy as a median against spikes, and steadier; of three it is the median."""
    ordered = sorted(values)
    outside = (len(ordered) + 1) // 4
    middle = len(ordered) - 2 * outside
    return sum(islice(ordered, outside, outside + middle)) / middle
