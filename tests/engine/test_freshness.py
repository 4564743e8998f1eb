"""The arithmetic of what the draft reads next."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nightjar_engine_patch.freshness import FRESH_LAG, DraftFreshness, Staleness, append_sampled, plan_feeds

NEVER = 10**6


def ints(*values):
    return np.array(values, dtype=np.int32)


def flags(*values):
    return np.array(values, dtype=bool)


def pairs(feed):
    """What each row reads: {row: (start, end)}."""
    return {row: (start, end) for row, start, end in zip(*map(np.ndarray.tolist, vars(feed).values()), strict=True)}


def test_sampled_tokens_are_appended_up_to_the_first_that_is_none():
    tokens = np.zeros((3, 8), dtype=np.int32)
    sampled = ints(*[[5, 6, -1], [7, -1, -1], [8, 9, 4]])
    known = append_sampled(tokens, sampled, ints(2, 0, 5), flags(0, 0, 1), vocab_size=100)
    assert known.tolist() == [4, 1, 5]
    assert tokens.tolist() == [[0, 0, 5, 6, 0, 0, 0, 0], [7] + [0] * 7, [0] * 8]


def test_a_token_outside_the_vocabulary_is_no_token():
    tokens = np.zeros((1, 4), dtype=np.int32)
    assert append_sampled(tokens, ints([3, 100]), ints(1), flags(0), vocab_size=100).tolist() == [2]


def test_drafts_that_turned_out_right_are_not_read_again():
    freshness = DraftFreshness(4, gamma_max=4)
    slots = freshness.slots(["all right", "first right", "wrong", "third where the second belongs"])
    freshness.record(slots, ints(3, 3, 3, 3))
    freshness.record_drafts(slots, ints([7, 8, 9], [7, 8, 9], [7, 8, 9], [7, 8, 9]))
    tokens = ints(
        [0, 0, 0, 7, 8, 9, 1, 2],
        [0, 0, 0, 7, 5, 0, 0, 0],
        [0, 0, 0, 5, 0, 0, 0, 0],
        [0, 0, 0, 7, 9, 5, 0, 0],
    )
    assert freshness.settle(slots, tokens, ints(8, 5, 4, 6)).tolist() == [6, 4, 3, 4]
    assert freshness.settle(slots, tokens, ints(8, 5, 4, 6)).tolist() == [6, 4, 3, 4], "drafts count once"


def test_a_draft_is_no_token_of_the_request_before_it_is_known():
    freshness = DraftFreshness(1, gamma_max=4)
    slots = freshness.slots(["a"])
    freshness.record(slots, ints(3))
    freshness.record_drafts(slots, ints([7, 8]))
    assert freshness.settle(slots, ints([0, 0, 0, 7, 8, 0]), ints(4)).tolist() == [4]


def test_a_length_of_one_has_no_drafts_to_remember():
    freshness = DraftFreshness(1, gamma_max=1)
    slots = freshness.slots(["a"])
    freshness.record_drafts(slots, np.empty((1, 0), dtype=np.int32))
    assert freshness.settle(slots, ints([1, 2]), ints(2)).tolist() == [0]


def test_a_forgotten_request_is_unread_when_it_comes_back_and_strangers_are_no_trouble():
    freshness = DraftFreshness(1, gamma_max=2)
    slots = freshness.slots(["a"])
    freshness.record(slots, ints(9))
    freshness.record_drafts(slots, ints([5]))
    freshness.forget(["a", "never seen", "a"])
    assert freshness.total_read == 0
    again = freshness.slots(["b"])
    assert freshness.settle(again, ints([5, 5, 5]), ints(3)).tolist() == [0]


def test_fresh_rows_read_their_newest_tokens_and_others_wait_for_their_turn():
    plan = plan_feeds(
        read=ints(9, 8, 0, 0, 20),
        known=ints(10, 10, 30, 30, 30),
        skip=flags(0, 0, 0, 0, 1),
        longest=NEVER,
        budget=40,
    )
    assert pairs(plan.catch_up) == {2: (0, 29), 3: (0, 11)}
    assert pairs(plan.newest) == {0: (9, 10), 1: (8, 10), 2: (29, 30)}


def test_the_newest_token_is_read_even_if_it_was_read_as_a_draft():
    plan = plan_feeds(ints(10), ints(10), flags(0), NEVER, 16)
    assert (pairs(plan.catch_up), pairs(plan.newest)) == ({}, {0: (9, 10)})


def test_rows_beyond_the_longest_are_left_alone():
    plan = plan_feeds(ints(5, 5), ints(50, 51), flags(0, 0), 50, NEVER)
    assert (pairs(plan.catch_up), pairs(plan.newest)) == ({0: (5, 49)}, {0: (49, 50)})


rows = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 400), st.booleans()), min_size=1, max_size=12)


@given(rows, st.integers(0, 450), st.integers(1, 300))
def test_a_plan_reads_each_token_once_in_order_within_the_budget(rows, longest, budget):
    read, known, skip = (np.array(column) for column in zip(*rows, strict=True))
    read, known = np.minimum(read, known).astype(np.int32), known.astype(np.int32)
    plan = plan_feeds(read, known, skip, longest, budget)
    catch_up, newest = pairs(plan.catch_up), pairs(plan.newest)
    assert plan.catch_up.tokens <= budget
    for row, (start, end) in catch_up.items():
        assert start == min(read[row], known[row] - 1) < end <= known[row] - 1
    for row, (start, end) in newest.items():
        assert end == known[row]
        assert start == catch_up.get(row, (0, min(read[row], known[row] - 1)))[1]
        assert end - start <= FRESH_LAG
    left_alone = set(np.flatnonzero(skip | (known > longest)).tolist())
    assert not left_alone & (set(catch_up) | set(newest))
    waiting = set(range(len(rows))) - left_alone - set(newest)
    if waiting:
        assert plan.catch_up.tokens == budget, "nobody waits while there is budget"


@given(st.lists(st.integers(1, 900), min_size=1, max_size=8), st.integers(16, 200))
def test_rows_that_wait_are_served_in_turn_and_all_propose_in_the_end(prompts, budget):
    count = len(prompts)
    known, read = np.array(prompts, dtype=np.int32), np.zeros(count, dtype=np.int32)
    none = np.zeros(count, dtype=bool)
    # Each waiting row has one token more to read after every step.
    most = math.ceil(sum(prompts) / (budget - count)) + 1
    first = math.ceil(prompts[0] / (budget - 1))
    for step in range(1, most + 1):
        plan = plan_feeds(read, known, none, NEVER, budget)
        read[plan.catch_up.rows] = plan.catch_up.end
        read[plan.newest.rows] = plan.newest.end
        assert step < first or 0 in plan.newest.rows
        if len(plan.newest) == count:
            return
        known += 1
    raise AssertionError(f"somebody waits after {most} steps")


def test_staleness_grows_by_a_token_a_request_while_the_batch_stays_and_is_counted_anew_when_it_does_not():
    staleness = Staleness()
    assert not staleness.grows(4, 4), "never counted"
    staleness.count(4, 100)
    assert staleness.grows(4, 4)
    assert staleness.tokens == 104
    assert not staleness.grows(3, 3), "a request is missing"
    assert not staleness.grows(4, 20), "prompts or drafts are among the tokens"
    assert staleness.tokens == 104
    staleness.forget()
    assert not staleness.grows(4, 4), "one left and another came"


def test_a_plan_says_what_stays_unread_after_it():
    read, known = np.array([10, 0, 50], np.int32), np.array([12, 40, 60], np.int32)
    nobody, prefilling = np.array([False, False, False]), np.array([False, True, False])
    assert plan_feeds(read, known, nobody, 100, 1000).stale_tokens == 0
    assert plan_feeds(read, known, nobody, 100, 16).stale_tokens == 39 + 9 - 16
    assert plan_feeds(read, known, prefilling, 100, 1000).stale_tokens == 39
