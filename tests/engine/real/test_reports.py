"""What step reports say of a crowd under a restless plan, and that it adds up."""

import pytest

from nightjar_benchmarks.pairs import random_prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

CATCH_UP_TOKENS = 64


def test_every_step_is_reported_once_and_in_order(story):
    steps = [report.step for report in story["reports"]]
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    times = [report.time_ns for report in story["reports"]]
    assert times == sorted(set(times))


def test_the_plan_is_walked_by_steps_with_a_decoding_request(story, restless):
    planned = [gamma for gamma, steps in restless for _ in range(steps)]
    obeyed = [report for report in story["reports"] if report.decode_batch]
    planned += [2] * (len(obeyed) - len(planned))
    assert [report.gamma_drafted for report in obeyed] == planned[: len(obeyed)]
    assert {report.plan_version for report in obeyed} == {story["version"]}


def test_a_step_with_length_0_spends_nothing_on_the_draft(story):
    off = [report for report in story["reports"] if report.gamma_drafted == 0]
    assert len(off) > 50
    assert {(report.draft_ns, report.catch_up_ns, report.catch_up_tokens) for report in off} == {(0, 0, 0)}


def test_a_step_with_a_length_spends_time_on_the_draft_and_catches_up_within_the_budget(story):
    on = [report for report in story["reports"] if report.gamma_drafted]
    assert max(report.catch_up_tokens for report in on) == CATCH_UP_TOKENS
    for report in on:
        assert (report.catch_up_ns > 0) == (report.catch_up_tokens > 0)
    assert all(report.draft_ns > 0 for report in on)


def test_what_was_verified_was_drafted_in_the_step_before_with_that_length(story):
    drafted = {report.step: report.gamma_drafted for report in story["reports"]}
    verifying = [report for report in story["reports"] if report.verified_tokens]
    assert len(verifying) > 50
    for report in verifying[1:]:
        assert report.drafted_at_step == report.step - 1
        assert report.gamma_verified == drafted[report.drafted_at_step] > 0
        assert sum(report.verified_by_position[report.gamma_verified :]) == 0
    for report in story["reports"]:
        if report.verified_tokens == 0:
            assert (report.gamma_verified, report.drafted_at_step, report.accepted_tokens) == (0, 0, 0)


def test_positions_are_verified_and_accepted_from_the_first_on(story):
    for report in story["reports"]:
        verified, accepted = list(report.verified_by_position), list(report.accepted_by_position)
        assert verified == sorted(verified, reverse=True)
        assert accepted == sorted(accepted, reverse=True)
        assert all(most >= some for most, some in zip(verified, accepted, strict=True))
        assert (sum(verified), sum(accepted)) == (report.verified_tokens, report.accepted_tokens)
        assert not verified or verified[0] <= report.decode_batch
    accepted, verified = (
        sum(getattr(r, name) for r in story["reports"]) for name in ("accepted_tokens", "verified_tokens")
    )
    assert 0.5 < accepted / verified < 1, "one region agrees always, the other often"


def test_emitted_tokens_are_those_that_clients_received(story):
    assert sum(report.emitted_tokens for report in story["reports"]) == sum(map(len, story["received"]))
    for report in story["reports"]:
        # A request's last tokens may be more than it asked for.
        assert report.emitted_tokens <= report.decode_batch + report.accepted_tokens
        assert report.emitted_tokens >= report.decode_batch
    assert (
        sum(report.emitted_tokens == report.decode_batch + report.accepted_tokens for report in story["reports"]) > 100
    )


def test_tokens_of_a_step_are_prompts_decodes_and_drafts(story):
    for report in story["reports"]:
        assert report.scheduled_tokens == report.prefill_tokens + report.decode_batch + report.verified_tokens
    prompts = sum(len(prompt) for prompt, _ in story["made"])
    assert sum(report.prefill_tokens for report in story["reports"]) + len(story["made"]) > prompts / 2


def test_prompts_are_read_once_but_for_what_was_sent_back(story):
    assert story["counters"]["vllm:num_preemptions_total"]
    assert all(report.recomputed_tokens <= report.prefill_tokens for report in story["reports"])
    again = sum(report.recomputed_tokens for report in story["reports"])
    read = sum(report.prefill_tokens for report in story["reports"])
    prompts = sum(len(prompt) - 1 for prompt, _ in story["made"])
    assert again > 0
    assert read - again <= prompts, "some of them were in the prefix cache"


def test_times_and_counts_are_possible(story, crowded):
    for report in story["reports"]:
        assert report.step_ns == report.forward_ns + report.draft_ns + report.catch_up_ns
        assert report.forward_ns > 0
        assert 0 < report.overhead_ns < report.step_ns
        assert report.total_blocks == crowded.info.blocks == 51
        assert report.free_blocks <= 50
        assert report.decode_batch <= 8 >= report.running


def test_the_draft_has_nothing_to_read_once_it_has_caught_up(crowded):
    prompt = random_prompt(crowded.pair, 0, 140, 9)
    with crowded.watched() as reports:
        crowded.plan(hold=3)
        crowded.token_ids(prompt, 40)
    assert [report.catch_up_tokens for report in reports[:4]] == [64, 64, 14, 0]
    # Each step the target emits one token more for the draft to read.
    assert [report.verified_tokens for report in reports[:4]] == [0, 0, 0, 3]
    assert [report.stale_tokens > 0 for report in reports] == [True] * 2 + [False] * (len(reports) - 2)


def test_prompts_in_chunks_alone_take_no_visit_of_the_plan(crowded):
    prompt = random_prompt(crowded.pair, 0, 460, 10)
    with crowded.watched() as reports:
        crowded.plan((4, 2), hold=1)
        crowded.token_ids(prompt, 12)
    chunks = sum(report.decode_batch == 0 for report in reports)
    assert chunks >= 2
    assert [report.gamma_drafted for report in reports[:chunks]] == [0] * chunks
    assert [report.gamma_drafted for report in reports[chunks:]] == [4, 4] + [1] * (len(reports) - chunks - 2)


@pytest.mark.parametrize(("gamma", "blocks"), [(0, 2), (5, 3)])
def test_blocks_are_held_for_drafts_only_where_the_plan_may_ask_for_some(crowded, gamma, blocks):
    """The request's 64 tokens fill two blocks of 32."""
    prompt = random_prompt(crowded.pair, 0, 50, 90 + gamma)
    with crowded.watched() as reports:
        crowded.plan(hold=gamma)
        crowded.token_ids(prompt, 14)
    used = [report.total_blocks - report.free_blocks for report in reports]
    # When the request has ended nothing is used but vLLM's own block.
    assert max(used) - used[-1] == blocks
