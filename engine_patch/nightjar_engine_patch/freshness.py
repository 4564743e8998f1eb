"""How far the draft has read each request, and what it must read next. Arithmetic on small arrays, no tensors.

A draft model proposes well only if its KV holds every token of the request. A step with γ = 0 gives it nothing,
so its KV falls behind; it is brought up to date later, in chunks, and only for requests that still run. The
draft has already read the tokens it proposed itself, except the last: those that were accepted are not read again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

# After a step that drafted, at most the last draft and the bonus token are unread.
FRESH_LAG = 2
_NO_TOKEN = -1


@dataclass(frozen=True)
class Feed:
    """The draft reads tokens `start[i]` … `end[i]` - 1 of the request in row `rows[i]` of the batch."""

    rows: Indices
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> int:
        return int((self.end - self.start).sum())


@dataclass(frozen=True)
class FeedPlan:
    """First `catch_up`, then one pass over `newest`, after which the requests in it propose."""

    catch_up: Feed
    newest: Feed
    stale_tokens: int
    """Tokens that are unread even after both, each request's newest aside."""


class Staleness:
    """Tokens that the draft has not read, over the whole batch; a sum over the batch only when it changed."""

    def __init__(self) -> None:
        self.tokens = 0
        self._rows: int | None = None

    def forget(self) -> None:
        """Requests came or went."""
        self._rows = None

    def count(self, rows: int, tokens: int) -> None:
        """What a sum over the batch's `rows` gave."""
        self.tokens = tokens
        self._rows = rows

    def grows(self, rows: int, scheduled: int) -> bool:
        """Whether the step only gave each of the same requests a token that the draft does not read; then count it."""
        if self._rows != rows or scheduled != rows:
            return False
        self.tokens += rows
        return True


class DraftFreshness:
    """What the draft has read, by request id; a request it does not know has been read nowhere.

    Each request has a slot in arrays of the size of the largest batch.
    """

    def __init__(self, max_requests: int, gamma_max: int) -> None:
        self._read = np.zeros(max_requests, dtype=np.int32)
        # The drafts that follow the tokens read, each read by the draft itself.
        self._drafts = np.full((max_requests, max(gamma_max - 1, 0)), _NO_TOKEN, dtype=np.int32)
        self._slot_of: dict[str, int] = {}
        self._free = list(range(max_requests))
        self._total_read: int | None = 0

    @property
    def total_read(self) -> int:
        """Tokens read over all requests; asked for in every step, summed up only after a change."""
        if self._total_read is None:
            self._total_read = int(self._read.sum())
        return self._total_read

    def slots(self, requests: Sequence[str]) -> Indices:
        """The slots of the batch's rows, [rows]; new requests get one."""
        known = self._slot_of
        for request in requests:
            if request not in known:
                known[request] = self._free.pop()
        return np.array([known[request] for request in requests], dtype=np.int64)

    def start(self, request: str, read: int) -> None:
        """A request of which the draft has read the first tokens before it began."""
        self.record(self.slots([request]), np.array([read], dtype=np.int32))

    def forget(self, requests: Iterable[str]) -> None:
        """Requests that ended, or lost their blocks by preemption."""
        for request in requests:
            slot = self._slot_of.pop(request, None)
            if slot is not None:
                self._read[slot] = 0
                self._total_read = None
                self._drafts[slot] = _NO_TOKEN
                self._free.append(slot)

    def forget_all(self) -> None:
        """The draft has lost everything it read."""
        self.forget(list(self._slot_of))

    def settle(self, slots: Indices, tokens: Ints, known: Ints) -> Ints:
        """Count the drafts that turned out to be the request's tokens as read; tokens read, [rows].

        tokens: [rows, …] all tokens of each row; known: [rows] how many there are
        """
        rows = np.arange(len(slots))
        read = self._read[slots]
        agrees = np.ones(len(slots), dtype=bool)
        for drafts in self._drafts[slots].T:
            agrees &= (read < known) & (tokens[rows, read] == drafts)
            read += agrees
        self.record(slots, read)
        self._drafts[slots] = _NO_TOKEN
        return read

    def record(self, slots: Indices, read: Ints) -> None:
        """The draft has read the first `read` tokens."""
        self._read[slots] = read
        self._total_read = None

    def record_drafts(self, slots: Indices, drafts: Ints) -> None:
        """… and after them its own `drafts`, [rows, at most γ max - 1]."""
        self._drafts[slots, : drafts.shape[1]] = drafts


def append_sampled(tokens: Ints, sampled: Ints, counts: Ints, skip: Flags, vocab_size: int) -> Ints:
    """Write each row's valid `sampled` tokens behind its first `counts`; the number then known, [rows].

    sampled: [rows, γ + 1], valid tokens first, the rest outside the vocabulary
    """
    valid = (sampled >= 0) & (sampled < vocab_size) & ~skip[:, None]
    rows, columns = np.nonzero(valid)
    tokens[rows, counts[rows] + columns] = sampled[rows, columns]
    known: Ints = counts + valid.sum(axis=1, dtype=np.int32)
    return known


def plan_feeds(read: Ints, known: Ints, skip: Flags, longest: int, budget: int) -> FeedPlan:
    """Fresh requests are all served; stale ones share `budget` tokens in the order of the rows.

    A request proposes once nothing but its newest token is left to read after its catch-up. Rows to `skip`, and
    those with more than `longest` tokens, are left alone.

    read, known, skip: [rows]; known >= 1
    """
    # The newest token is always read, even if it was drafted before: its pass gives the first draft.
    read = np.minimum(read, known - 1)
    stale = known - 1 - read
    eligible = ~skip & (known <= longest)
    behind = eligible & (stale >= FRESH_LAG)
    if not behind.any():
        return FeedPlan(_NOTHING, _feed(eligible, read, known), int(stale[~eligible].sum()))
    wanted = np.where(behind, stale, 0)
    chunk = np.clip(budget - (np.cumsum(wanted) - wanted), 0, wanted)
    caught_up = read + chunk
    complete = eligible & (~behind | (chunk == stale))
    left = int((stale - chunk)[~complete].sum())
    return FeedPlan(_feed(chunk > 0, read, caught_up), _feed(complete, caught_up, known), left)


def _feed(chosen: Flags, start: npt.NDArray[np.integer], end: npt.NDArray[np.integer]) -> Feed:
    rows = np.flatnonzero(chosen)
    return Feed(rows, start[rows].astype(np.int32), end[rows].astype(np.int32))


_NOTHING = Feed(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int32))
