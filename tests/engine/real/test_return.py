"""Back from γ = 0: one request of which every step can be foretold, because the pair says when its draft is right."""

import math

import pytest

from nightjar_benchmarks.pairs import draft_agrees, expected_continuation, random_prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

PROMPT, TOKENS = 150, 340
CATCH_UP_TOKENS = 64
ON, OFF = 25, 100
BLOCK = 32
PROMPT_BLOCKS = (PROMPT - 1) // BLOCK


@pytest.fixture(scope="module", params=[0, 1], ids=["a draft that is always right", "a draft that is often right"])
def prompt(pair, request):
    return random_prompt(pair, request.param, PROMPT, 11)


@pytest.fixture(scope="module")
def continuation(pair, prompt):
    """A little longer than what is asked for: the last drafts reach behind the end."""
    return expected_continuation(pair, prompt, TOKENS + 8)


@pytest.fixture(scope="module")
def steps(crowded, prompt, continuation):
    with crowded.watched() as reports:
        crowded.plan((4, ON), (0, OFF), hold=4)
        assert crowded.token_ids(prompt, TOKENS) == continuation[:TOKENS]
    return [report for report in reports if report.decode_batch]


def accepted(agrees):
    return agrees.index(False) if False in agrees else len(agrees)


def test_every_draft_is_accepted_exactly_where_a_draft_that_read_everything_is_right(pair, steps, prompt, continuation):
    agrees = draft_agrees(pair, prompt, continuation)
    done = 0
    for step in steps:
        foretold = accepted(agrees[done : done + step.verified_tokens])
        assert step.accepted_tokens == foretold
        done += step.emitted_tokens
    assert done == TOKENS


def test_the_draft_returns_as_soon_as_the_budget_allows(steps):
    back = ON + OFF
    stale = steps[back].catch_up_tokens + steps[back].stale_tokens
    assert OFF <= stale <= OFF + 5
    silent = math.ceil(stale / CATCH_UP_TOKENS) - 1
    caught_up = [step.catch_up_tokens for step in steps[back : back + silent + 1]]
    assert caught_up[:-1] == [CATCH_UP_TOKENS] * silent
    assert sum(step.verified_tokens for step in steps[ON + 1 : back + silent + 1]) == 0
    assert all(step.verified_tokens == 4 for step in steps[back + silent + 1 : -1])
    assert all(step.catch_up_tokens == 0 for step in steps[back + silent + 1 :])


def test_acceptance_returns_to_what_it_was_and_would_not_without_catching_up(pair, steps, prompt, continuation):
    """The control is what the pair's draft proposes while the tokens of the steps without it miss in its KV."""
    agrees = draft_agrees(pair, prompt, continuation)
    back = sum(step.emitted_tokens for step in steps[: ON + OFF])
    missing = range(PROMPT + back - OFF, PROMPT + back)
    in_reach = range(back, back + pair.shape.context_tokens)
    stale = [proposes_rightly(pair, prompt + continuation, PROMPT + index, missing) for index in in_reach]
    assert sum(stale) < 0.9 * sum(agrees[index] for index in in_reach)
    found = [step.accepted_by_position[0] for step in steps[ON + OFF :] if step.verified_tokens]
    assert sum(found) / len(found) >= 0.95 * sum(agrees[:back]) / back


def proposes_rightly(pair, text, position, missing):
    looked_at = [position - 1 - offset for offset in pair.shape.offsets]
    half = int(sum(int(pair.graph.classes[text[place]]) for place in looked_at if place not in missing) > 0)
    return int(pair.graph.draft[half, text[position - 1]]) == text[position]


@pytest.mark.parametrize(("gamma", "cached"), [(2, "read"), (0, "unread")])
def test_of_a_cached_prompt_the_draft_reads_what_it_has_not_read(crowded, pair, gamma, cached):
    """Whole blocks of the prompt, the last token aside, come from the cache; the target reads the rest."""
    prompt = random_prompt(pair, 0, PROMPT, 70 + gamma)
    expected = expected_continuation(pair, prompt, 20)
    crowded.plan(hold=gamma)
    crowded.check(prompt, expected)
    with crowded.watched() as reports:
        crowded.plan(hold=2)
        crowded.check(prompt, expected)
    (joined,) = (report for report in reports if report.prefill_tokens)
    assert joined.prefill_tokens + joined.decode_batch == PROMPT - PROMPT_BLOCKS * BLOCK
    behind = PROMPT - PROMPT_BLOCKS * BLOCK if cached == "read" else PROMPT
    # While it catches up the target goes on.
    behind += math.ceil(behind / CATCH_UP_TOKENS) - 1
    assert sum(report.catch_up_tokens for report in reports) == behind
    for report in reports:
        assert list(report.accepted_by_position) == list(report.verified_by_position)
