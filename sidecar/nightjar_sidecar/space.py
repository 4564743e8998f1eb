"""What a policy chooses among, and the contexts it tells apart."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Bucket(NamedTuple):
    """Decode batches from `low` to `high`, both included; the last bucket also serves larger ones."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Space:
    """Speculative lengths 0..gamma_max and the buckets of decode batches that share one decision."""

    gamma_max: int
    buckets: tuple[Bucket, ...]
    bounds: tuple[int, ...]

    @classmethod
    def of(cls, gamma_max: int, bounds: Sequence[int]) -> "Space":
        """`bounds`: growing upper bounds of the buckets, the first at least 1."""
        lows = (1, *(bound + 1 for bound in bounds[:-1]))
        return cls(gamma_max, tuple(map(Bucket, lows, bounds)), tuple(bounds))

    @property
    def gammas(self) -> range:
        return range(self.gamma_max + 1)

    def bucket(self, batch: int) -> Bucket:
        return self.buckets[min(bisect_left(self.bounds, batch), len(self.bounds) - 1)]
