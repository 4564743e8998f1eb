"""Greedy output is the target's own, whatever happens: the pair says what that is without any model."""

from random import Random

import pytest

from nightjar_benchmarks.pairs import expected_continuation, random_prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


def expected(pair, made):
    return [expected_continuation(pair, prompt, tokens) for prompt, tokens, *_ in made]


def test_every_request_of_a_crowd_gets_the_targets_own_tokens(story, crowded):
    assert story["received"] == expected(crowded.pair, story["made"])


def test_the_crowd_met_everything_it_was_made_for(story):
    reports = story["reports"]
    assert story["counters"]["vllm:num_preemptions_total"]
    assert story["counters"]["vllm:prefix_cache_hits_total"] >= 1000
    assert {report.gamma_drafted for report in reports} == {0, 1, 2, 3, 5}
    assert max(report.decode_batch for report in reports) >= 6
    assert any(report.prefill_tokens and report.verified_tokens for report in reports), "chunks beside drafts"
    assert max(report.waiting for report in reports)


def test_a_draft_that_is_always_right_is_never_refused_so_nothing_it_read_was_stale(crowded, crowd, restless):
    """One stale KV entry would make it propose another token: the pair was built so."""
    made = crowd([0], 32, 2)
    preempted = crowded.metric("vllm:num_preemptions_total")
    with crowded.watched() as reports:
        crowded.plan(*restless, hold=2)
        assert crowded.all_token_ids(made) == expected(crowded.pair, made)
    assert crowded.metric("vllm:num_preemptions_total") > preempted
    assert sum(report.verified_tokens for report in reports) > 1000
    for report in reports:
        assert list(report.accepted_by_position) == list(report.verified_by_position), report


def test_clients_that_leave_take_nothing_with_them(crowded, crowd):
    """More than the batch holds, so that some leave while they wait; again and again."""
    crowded.plan(hold=3)
    for round_ in range(3):
        made = crowd([0, 1], 16, 100 * round_)
        with crowded.watched() as reports:
            crowded.all_leave(made)
        assert reports
    made = crowd([0], 12, 7)
    with crowded.watched() as reports:
        assert crowded.all_token_ids(made) == expected(crowded.pair, made)
    assert sum(report.verified_tokens for report in reports) > 200
    assert all(list(report.accepted_by_position) == list(report.verified_by_position) for report in reports)


def test_more_important_requests_may_overtake_preempted_ones(ranked, restless):
    random = Random(5)
    made = [
        (random_prompt(ranked.pair, index % 2, random.randrange(64, 120), index), 300, {"priority": -index})
        for index in range(24)
    ]
    preempted = ranked.metric("vllm:num_preemptions_total")
    ranked.plan(*restless, hold=3)
    assert ranked.all_token_ids(made) == expected(ranked.pair, made)
    assert ranked.metric("vllm:num_preemptions_total") > preempted


def test_requests_outgrow_the_context_of_the_draft_and_are_served_without_it(ranked):
    prompt = random_prompt(ranked.pair, 0, 100, 0)
    with ranked.watched() as reports:
        ranked.plan(hold=5)
        assert ranked.token_ids(prompt, ranked.context - 100) == expected_continuation(
            ranked.pair, prompt, ranked.context - 100
        )
    verified = [report.verified_tokens for report in reports]
    assert sum(verified) > 150
    assert verified[-150:] == [0] * 150
