"""What the GPU engine gives under plans that change, against the target's own tokens."""

import numpy as np
import pytest

from nightjar_benchmarks.pairs import expected_continuation

pytestmark = pytest.mark.timeout(600)
RESTLESS = [(3, 7), (0, 9), (4, 5), (0, 15), (1, 6), (2, 8)] * 6


def prompts(pair, count, length, seed):
    tokens = np.flatnonzero(pair.graph.regions == 0)
    return np.random.default_rng(seed).choice(tokens, (count, length)).tolist()


def sampling(tokens, **fields):
    from vllm import SamplingParams

    return SamplingParams(**{"max_tokens": tokens, "temperature": 0, "ignore_eos": True, "detokenize": False} | fields)


def preemptions(engine):
    return sum(metric.value for metric in engine.llm.get_metrics() if metric.name == "vllm:num_preemptions")


def test_greedy_tokens_are_the_targets_own_whatever_is_planned(engine, pair):
    made = prompts(pair, 60, 300, 1)
    # Every third prompt is known by its first half, and longer than a step takes.
    made = [made[0][:150] + prompt[150:] if index % 3 == 0 else prompt for index, prompt in enumerate(made)]
    before = preemptions(engine)
    received, reports = engine.generate(made, sampling(90), gamma=2, segments=RESTLESS)
    assert [list(one.token_ids) for one in received] == [expected_continuation(pair, prompt, 90) for prompt in made]
    assert preemptions(engine) > before
    assert {report.gamma_drafted for report in reports} == {0, 1, 2, 3, 4}
    assert sum(report.catch_up_tokens for report in reports) > 0
    accepted, verified = (
        sum(getattr(report, f"{what}_tokens") for report in reports) for what in ("accepted", "verified")
    )
    assert accepted > 0.5 * verified, "the drafts were the draft's own"


def test_without_speculation_nothing_of_the_draft_runs(engine, pair):
    made = prompts(pair, 4, 100, 2)
    received, reports = engine.generate(made, sampling(40))
    assert [list(one.token_ids) for one in received] == [expected_continuation(pair, prompt, 40) for prompt in made]
    assert {(report.draft_ns, report.catch_up_ns, report.verified_tokens) for report in reports} == {(0, 0, 0)}
    assert all(report.forward_ns > 0 for report in reports)


def test_every_step_that_drafted_says_how_long_it_took_but_the_last_ones(engine, pair):
    _, reports = engine.generate(prompts(pair, 2, 100, 3), sampling(40), gamma=3)
    drafted = [report for report in reports[:-2] if report.gamma_drafted]
    assert all(report.draft_ns > 0 for report in drafted)
    assert [report.step for report in reports] == list(range(reports[0].step, reports[0].step + len(reports)))


def test_the_draft_is_as_good_after_a_pause_as_before(engine, pair):
    _, reports = engine.generate(prompts(pair, 8, 100, 4), sampling(400), gamma=3, segments=[(3, 40), (0, 200)])
    back = next(index for index, report in enumerate(reports) if index > 100 and report.gamma_drafted)
    shares = [
        sum(report.accepted_tokens for report in part) / sum(report.verified_tokens for report in part)
        for part in (reports[:back], reports[back:])
    ]
    assert shares[1] > 0.9 * shares[0]


def test_log_probabilities_are_those_without_speculation(engine, pair):
    made = prompts(pair, 6, 100, 5)
    plain, _ = engine.generate(made, sampling(30, logprobs=2))
    drafted, _ = engine.generate(made, sampling(30, logprobs=2), gamma=3)
    for one, other in zip(plain, drafted, strict=True):
        assert one.token_ids == other.token_ids
        chosen = [
            [step[token].logprob for step, token in zip(answer.logprobs, answer.token_ids, strict=True)]
            for answer in (one, other)
        ]
        np.testing.assert_allclose(*chosen, atol=0.1)


def test_sampled_tokens_are_distributed_as_without_speculation(engine, pair):
    """With two candidates each token is a coin; ours must fall as the target's own does."""
    made = prompts(pair, 500, 100, 6)
    shares = []
    for gamma in (0, 3):
        received, _ = engine.generate(made, sampling(4, temperature=2.0, top_k=2, seed=None), gamma=gamma)
        # Behind the first, each can be a draft that was verified.
        falls = [
            one.token_ids[at] != expected_continuation(pair, [*prompt, *one.token_ids[:at]], 1)[0]
            for prompt, one in zip(made, received, strict=True)
            for at in (1, 2, 3)
        ]
        shares.append(float(np.mean(falls)))
    assert 0.002 < shares[0] < 0.5
    # Five standard deviations of the difference of two shares of so many coins.
    assert abs(shares[1] - shares[0]) < 5 * np.sqrt(2 * shares[0] * (1 - shares[0]) / len(falls))
