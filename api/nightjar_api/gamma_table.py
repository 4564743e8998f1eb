"""vLLM's `num_speculative_tokens_per_batch_size`: a speculative length per range of batch sizes."""

from collections.abc import Sequence
from typing import NamedTuple

from nightjar_api.errors import ConfigurationError


class Entry(NamedTuple):
    """Batches from `low` to `high`, both included, speculate `gamma` tokens."""

    low: int
    high: int
    gamma: int


def check(entries: Sequence[Sequence[int]]) -> tuple[Entry, ...]:
    """ConfigurationError names the entry that is wrong; ranges grow from 1 and do not overlap."""
    found = problem(entries)
    if found is not None:
        raise ConfigurationError(found)
    return tuple(Entry(*entry) for entry in entries)


def problem(entries: Sequence[Sequence[int]]) -> str | None:
    """What is wrong with the first entry that is; None when nothing is."""
    if not entries:
        return "table: at least one [low, high, gamma] is required, found none"
    above = 0
    for number, entry in enumerate(entries, 1):
        whole = len(entry) == 3 and all(type(value) is int for value in entry)
        if not whole or not 1 <= entry[0] <= entry[1] or entry[2] < 0:
            return (
                f"table, entry {number}: [low, high, gamma] with 1 <= low <= high and gamma >= 0 is required,"
                f" found {list(entry)}"
            )
        if number == 1 and entry[0] != 1:
            return f"table, entry 1: low 1 is required, found {entry[0]}"
        if entry[0] <= above:
            return f"table, entry {number}: low above {above} is required, found {entry[0]}"
        above = entry[1]
    return None
