from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_kernels.draft_inputs import (
    Best,
    Inputs,
    Requests,
    advance,
    best_of_parts,
    newest_inputs,
    parts_of,
    unread_inputs,
)

SLOTS, LONGEST, CONTEXT = 9, 40, 30


@pytest.fixture(scope="session")
def triton_module(interpreted) -> ModuleType:
    module = interpreted("nightjar_kernels.draft_inputs.triton")
    # Pieces below are longer and shorter than this, and no multiple of it.
    module.TOKENS = 8
    return module


def requests_of(computed):
    tokens = torch.arange(SLOTS * LONGEST, dtype=torch.int32).reshape(SLOTS, LONGEST)
    newest = 1000 + torch.arange(SLOTS, dtype=torch.int64)[:, None]
    return Requests(torch.tensor(computed, dtype=torch.int32), tokens, newest)


def empty(tokens, rows):
    """What was there before must not show."""
    return Inputs(
        torch.full((tokens,), -7, dtype=torch.int32),
        torch.full((tokens,), -7, dtype=torch.int64),
        torch.full((rows,), -7, dtype=torch.int32),
    )


def same(first, second):
    return all(torch.equal(getattr(first, name), getattr(second, name)) for name in ("ids", "positions", "seq_lens"))


computed_counts = st.lists(st.integers(1, LONGEST - 1), min_size=SLOTS, max_size=SLOTS)


@settings(deadline=None, max_examples=40)
@given(computed=computed_counts, rows=st.lists(st.integers(-1, SLOTS - 1), min_size=1, max_size=6))
def test_the_first_pass_reads_the_last_computed_token_and_the_newest(computed, rows, triton_module):
    requests, found, expected = requests_of(computed), empty(2 * len(rows), len(rows)), empty(2 * len(rows), len(rows))
    newest_inputs(torch.tensor(rows), requests, expected)
    triton_module.newest_inputs(torch.tensor(rows), requests, found)
    assert same(found, expected)
    for row, slot in enumerate(rows):
        ids, positions = found.ids[2 * row : 2 * row + 2].tolist(), found.positions[2 * row : 2 * row + 2].tolist()
        if slot < 0:
            assert (ids, positions, int(found.seq_lens[row])) == ([0, 0], [0, 0], 0)
            continue
        at = computed[slot]
        assert ids == [slot * LONGEST + at - 1, 1000 + slot]
        assert (positions, int(found.seq_lens[row])) == ([at - 1, at], at + 1)


pieces = st.lists(st.tuples(st.integers(-1, SLOTS - 1), st.integers(1, 38), st.integers(1, 38)), min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(computed=computed_counts, made=pieces)
def test_a_piece_starts_at_the_first_unread_token_and_ends_with_what_is_computed(computed, made, triton_module):
    made = [(slot, unread, min(length, unread) if slot >= 0 else 0) for slot, unread, length in made]
    requests = requests_of(computed)
    rows, unread, lengths = (torch.tensor(column) for column in zip(*made, strict=True))
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).int()
    expected, found = (empty(int(starts[-1]), len(made)) for _ in range(2))
    # Of a whole batch in a graph nobody knows how long a row is.
    longest = int(starts[-1])
    real, real_found = (torch.zeros(longest, dtype=torch.bool) for _ in range(2))
    unread_inputs(rows, unread.int(), starts, requests, expected, real, longest)
    triton_module.unread_inputs(rows, unread.int(), starts, requests, found, real_found, longest)
    assert same(found, expected)
    assert torch.equal(real, real_found)
    for row, (slot, behind, length) in enumerate(made):
        if slot < 0:
            assert int(found.seq_lens[row]) == 0
            continue
        first = max(computed[slot] - behind, 0)
        read = list(range(first, min(first + length, computed[slot])))
        piece = slice(int(starts[row]), int(starts[row + 1]))
        assert found.positions[piece][real[piece]].tolist() == read
        assert found.ids[piece][real[piece]].tolist() == [slot * LONGEST + position for position in read]
        # Attention aligns a row's last token, padding or not, with the last one attended to.
        assert int(found.seq_lens[row]) == first + length


@settings(deadline=None, max_examples=15)
@given(rows=st.integers(1, 3), vocab_size=st.sampled_from([5, 4096, 4099, 9000]), seed=st.integers(0, 99))
def test_the_best_of_the_parts_is_the_best_of_all(rows, vocab_size, seed, triton_module):
    # Few values, so that many are equal, and the first of them counts.
    logits = torch.randint(-3, 4, (rows, vocab_size), generator=torch.Generator().manual_seed(seed)).bfloat16()
    found = []
    for implementation in (best_of_parts, triton_module.best_of_parts):
        best = Best(torch.zeros(rows, parts_of(vocab_size)), torch.zeros(rows, parts_of(vocab_size), dtype=torch.int32))
        implementation(logits, best)
        found.append(best)
    assert torch.equal(found[0].logits, found[1].logits)
    assert torch.equal(found[0].ids, found[1].ids)
    picked = found[0].ids[torch.arange(rows), found[0].logits.argmax(dim=1)]
    assert picked.tolist() == [row.index(max(row)) for row in logits.tolist()]


@settings(deadline=None, max_examples=40)
@given(
    made=st.lists(
        st.tuples(
            st.lists(st.integers(0, 2), min_size=3, max_size=3),
            st.integers(0, CONTEXT - 1),
            # Of five; warm-ups count further.
            st.integers(0, 8),
            st.booleans(),
        ),
        min_size=1,
        max_size=6,
    ),
    first=st.booleans(),
)
def test_the_best_is_kept_in_its_column_and_read_next(made, first, triton_module):
    rows = len(made)
    logits = torch.tensor([row for row, *_ in made]).float()
    best = Best(logits, torch.arange(3 * rows, dtype=torch.int32).reshape(rows, 3))
    positions = torch.tensor([position for _, position, *_ in made])
    takes_part = torch.tensor([part for *_, part in made])
    read = Inputs(
        torch.zeros(rows * (1 + first), dtype=torch.int32),
        positions.repeat_interleave(2) if first else positions,
        torch.where(takes_part, positions + 1, 0).int(),
    )
    columns = torch.tensor([column for *_, column, _ in made], dtype=torch.int32)
    results = []
    for implementation in (advance, triton_module.advance):
        # What lies behind a row is somebody else's.
        whole, counted, following = torch.full((rows, 10), -7), columns.clone(), empty(rows, rows)
        implementation(best, read, whole[:, :5], counted, following, CONTEXT, first=first)
        assert bool((whole[:, 5:] == -7).all())
        results.append((whole[:, :5], counted, following))
    (drafts, counted, following), (drafts_found, counted_found, following_found) = results
    assert torch.equal(drafts, drafts_found)
    assert torch.equal(counted, counted_found)
    assert same(following, following_found)
    for row, (ranks, position, column, part) in enumerate(made):
        written, draft = 0 if first else column, 3 * row + ranks.index(max(ranks))
        assert drafts[row].tolist() == [draft if index == written else -7 for index in range(5)]
        assert int(counted[row]) == written + 1
        assert (int(following.ids[row]), int(following.positions[row])) == (draft, min(position + 1, CONTEXT - 1))
        assert int(following.seq_lens[row]) == (min(position + 2, CONTEXT) if part else 0)


def test_a_row_of_nothing_but_nan_proposes_some_token(triton_module):
    best = Best(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.int32))
    triton_module.best_of_parts(torch.full((1, 5000), torch.nan), best)
    drafts, columns = torch.full((1, 1), -7), torch.zeros(1, dtype=torch.int32)
    read = Inputs(
        torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int64), torch.ones(1, dtype=torch.int32)
    )
    triton_module.advance(best, read, drafts, columns, empty(1, 1), CONTEXT, first=True)
    assert 0 <= int(drafts[0, 0]) < 5000
