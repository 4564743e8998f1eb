from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_sidecar.policies.acceptance import Acceptance

SECOND = 1_000_000_000


def feed(acceptance, rate, rounds, *, gamma=3, batch=8, seed=0, start_ns=None):
    rng = Random(seed)
    start_ns = acceptance.seen_ns + SECOND // 100 if start_ns is None else start_ns
    for index in range(rounds):
        counts = [0] * gamma
        for _ in range(batch):
            for position in range(gamma):
                if rng.random() >= rate:
                    break
                counts[position] += 1
        acceptance.learn([batch] * gamma, counts, start_ns + index * SECOND // 100)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_acceptance_of_each_position_is_learnt(rate):
    acceptance = Acceptance()
    feed(acceptance, rate, 300)
    assert acceptance.rates(3) == pytest.approx([rate, rate**2, rate**3], abs=0.06)


def test_a_long_draft_teaches_the_tokens_of_shorter_ones():
    acceptance = Acceptance()
    feed(acceptance, 0.8, 300)
    assert acceptance.tokens(3) == pytest.approx([1, 1.8, 2.44, 2.952], abs=0.12)


def test_positions_never_seen_are_believed_to_be_like_the_one_before():
    acceptance = Acceptance()
    feed(acceptance, 0.9, 300, gamma=1)
    first, second = acceptance.rates(2)
    assert second == pytest.approx(first**2, abs=0.01)


def test_a_change_of_content_is_followed_within_some_dozen_requests_times_rounds():
    acceptance = Acceptance()
    feed(acceptance, 0.9, 500)
    feed(acceptance, 0.3, 16, seed=1)
    assert acceptance.rates(1)[0] < 0.45


def test_a_single_user_after_a_crowd_is_believed_within_some_dozen_rounds():
    acceptance = Acceptance()
    feed(acceptance, 0.5, 100, batch=64)
    feed(acceptance, 0.95, 40, batch=1, seed=1)
    assert acceptance.rates(1)[0] > 0.75


def alarms(acceptance, rate, rounds, seed):
    """Numbers of the rounds, with one request and one draft each, that are said to be other content."""
    rng = Random(seed)
    start_ns = acceptance.seen_ns
    return [
        number
        for number in range(rounds)
        if acceptance.learn([1], [int(rng.random() < rate)], start_ns + (number + 1) * SECOND // 100)
    ]


@pytest.mark.parametrize(("before", "after", "rounds"), [(0.5, 0.95, 30), (0.95, 0.4, 20), (0.95, 0.0, 12)])
def test_the_greater_a_change_the_fewer_trials_show_it(before, after, rounds):
    found = []
    for seed in range(20):
        acceptance = Acceptance()
        feed(acceptance, before, 100, batch=64, seed=seed)
        found += alarms(acceptance, after, 60, seed)[:1]
    assert len(found) >= 18
    assert sum(found) / len(found) < rounds


def test_other_content_is_judged_by_what_showed_it_alone():
    acceptance = Acceptance()
    feed(acceptance, 0.95, 100, batch=64)
    alarms(acceptance, 0.95, 32, seed=1)
    assert alarms(acceptance, 0.0, 12, seed=1)
    assert acceptance.rates(1)[0] < 0.3


@pytest.mark.parametrize("rate", [0.5, 0.7, 0.95])
def test_content_that_stays_is_seldom_taken_for_other(rate):
    acceptance = Acceptance()
    feed(acceptance, rate, 100, batch=64)
    assert len(alarms(acceptance, rate, 10_000, seed=1)) <= 5


def test_one_round_of_a_crowd_is_an_accident_and_two_are_other_content():
    """A round of 41 requests, of which 18 were accepted, once stopped speculation for five seconds."""
    acceptance = Acceptance()
    for index in range(40):
        assert not acceptance.learn([41], [30], index * SECOND // 100)
    assert not acceptance.learn([41], [16], 40 * SECOND // 100)
    assert acceptance.rates(1)[0] > 0.68
    assert acceptance.learn([41], [16], 41 * SECOND // 100)
    assert acceptance.rates(1)[0] < 0.45


def test_what_came_after_seconds_unseen_is_sooner_taken_for_other_content_than_the_next_round():
    """A sample of two dozen drafts once in six seconds must be able to tell; of rounds without end some look odd."""
    found = []
    for gap_ns in (0, 6 * SECOND):
        acceptance = Acceptance()
        feed(acceptance, 0.3, 100, batch=64)
        start_ns = acceptance.seen_ns + gap_ns
        found.append(
            [
                acceptance.learn([batch], [accepted], start_ns + (number + 1) * SECOND // 100)
                for number, (batch, accepted) in enumerate([(2, 1), (4, 3), (5, 3), (6, 4), (7, 4)])
            ]
        )
    assert [any(alarms) for alarms in found] == [False, True]


@pytest.mark.parametrize("batch", [1, 4, 8])
def test_requests_that_come_and_go_are_not_taken_for_other_content(batch):
    """A false alarm at the second draft made the planner draft one, and then it saw no second draft any more."""
    changes = 0
    for seed in range(10):
        acceptance, rng = Acceptance(), Random(seed)
        kinds = (0.6, 0.74, 0.86)
        rates = rng.choices(kinds, k=batch)
        for number in range(2000):
            if rng.random() < batch / 100:
                rates[rng.randrange(batch)] = rng.choice(kinds)
            accepted = sum(rng.random() < rate for rate in rates)
            changes += acceptance.learn([batch], [accepted], number * SECOND // 100)
    assert changes <= 1


def test_what_is_accepted_of_a_crowd_is_known_to_a_percent_or_so():
    """Around break-even lengths differ by a percent."""
    acceptance, rng, errors = Acceptance(), Random(0), []
    for number in range(600):
        acceptance.learn([64], [sum(rng.random() < 0.7 for _ in range(64))], number * SECOND // 100)
        errors.append(abs(acceptance.rates(1)[0] - 0.7))
    assert max(errors[200:]) < 0.025


def test_steady_content_is_estimated_steadily():
    acceptance = Acceptance()
    for seed in range(200):
        feed(acceptance, 0.7, 10, batch=4, seed=seed)
        if seed > 10:
            assert acceptance.rates(1)[0] == pytest.approx(0.7, abs=0.2)


def test_lengths_drafted_for_are_less_in_doubt_than_longer_ones():
    acceptance = Acceptance()
    feed(acceptance, 0.7, 300, gamma=2)
    doubts = acceptance.doubts(4, 1000)
    assert doubts[0] == 0
    assert doubts == sorted(doubts)
    assert doubts[2] < 0.03 < doubts[4]


def test_a_few_trials_move_little_where_much_was_seen():
    acceptance = Acceptance()
    feed(acceptance, 0.7, 300)
    assert acceptance.doubts(3, 8)[3] < 0.3 * acceptance.doubts(3, 1000)[3]


def test_positions_not_drafted_for_become_doubtful():
    acceptance = Acceptance()
    feed(acceptance, 0.7, 300, gamma=3)
    before = acceptance.doubts(3, 1000)[3]
    feed(acceptance, 0.7, 30, gamma=1, start_ns=300 * SECOND)
    assert acceptance.doubts(3, 1000)[3] > 2 * before


def test_a_crowd_shows_a_change_within_a_few_dozen_drafts_though_few_requests_draft():
    """Met in a surge: after a return from 0 only requests that were caught up draft, and old trials weigh much."""
    acceptance = Acceptance()
    feed(acceptance, 0.9, 200, batch=1)
    for batch in (4, 9, 14, 18, 22):
        feed(acceptance, 0.5, 1, batch=batch, seed=batch, start_ns=acceptance.seen_ns + SECOND // 5)
    assert acceptance.rates(1)[0] < 0.65


rounds = st.lists(
    st.lists(st.integers(0, 64), min_size=0, max_size=8).map(lambda c: sorted(c, reverse=True)), max_size=60
)


@settings(deadline=None)
@given(rounds, st.integers(0, 8))
def test_rates_fall_with_position_and_stay_probabilities_whatever_is_reported(accepted_rounds, gamma_max):
    acceptance = Acceptance()
    for accepted in accepted_rounds:
        acceptance.learn([64] * len(accepted), accepted, 0)
    rates = acceptance.rates(gamma_max)
    assert len(rates) == gamma_max
    assert all(0 <= rate <= 1 for rate in rates)
    assert rates == sorted(rates, reverse=True)
    assert all(doubt >= -1e-9 for doubt in acceptance.doubts(gamma_max, 64))
