"""Everything that steers a request's tokens, with drafts that know nothing of it: the tokens without speculation."""

import numpy as np
import pytest

from nightjar_benchmarks.pairs import expected_continuation

pytestmark = pytest.mark.timeout(600)
RESTLESS = [(3, 3), (0, 2), (4, 4), (1, 3), (0, 3), (2, 4)] * 12
TOKENS = 60


@pytest.fixture
def prompts(pair):
    tokens = np.flatnonzero(pair.graph.regions == 0)
    return np.random.default_rng(21).choice(tokens, (8, 100)).tolist()


def sampling(**fields):
    from vllm import SamplingParams

    return SamplingParams(**{"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True} | fields)


def with_and_without(engine, prompts, params):
    """Outputs without speculation, under lengths that change every few steps, and how many drafts were verified."""
    plain, _ = engine.generate(prompts, params)
    found, reports = engine.generate(prompts, params, gamma=3, segments=RESTLESS)
    return plain, found, sum(report.verified_tokens for report in reports)


def token_ids(outputs):
    return [list(output.token_ids) for output in outputs]


def steered(engine, pair, prompts, steering):
    """Each position that is verified counts the drafts before it."""
    continuations = [expected_continuation(pair, prompt, TOKENS) for prompt in prompts]
    # So that repetition has something to punish; what comes next is decided by the end.
    given = [continuation + prompt for continuation, prompt in zip(continuations, prompts, strict=True)]
    params = [sampling(**steering(continuation)) for continuation in continuations]
    plain, found, verified = with_and_without(engine, given, params)
    assert token_ids(found) == token_ids(plain)
    assert all(one != other for one, other in zip(token_ids(plain), continuations, strict=True)), "it made a difference"
    assert verified > 100


def test_what_steers_a_request_gives_the_tokens_without_speculation(engine, pair, prompts, steering):
    steered(engine, pair, prompts, steering)


def test_words_that_are_forbidden_stay_so_with_drafts_that_say_them(engine, pair, prompts):
    # By their tokens: the words that a server is given may have others.
    steered(engine, pair, prompts, lambda tokens: {"_bad_words_token_ids": [[tokens[4]], tokens[9:11]]})


def test_structured_output_is_valid_and_that_without_speculation(engine, prompts, grammars, fits):
    from vllm.sampling_params import StructuredOutputsParams

    asked = [*grammars, None] * 2
    params = [
        sampling() if one is None else sampling(ignore_eos=False, structured_outputs=StructuredOutputsParams(**one))
        for one in asked
    ]
    plain, found, verified = with_and_without(engine, prompts, params)
    assert token_ids(found) == token_ids(plain)
    assert verified > 100
    # Not `output.text`: a prompt of any tokens may end within a character, and then has a part in the text.
    decode = engine.llm.get_tokenizer().decode
    texts = [decode(tokens, skip_special_tokens=True) for tokens in token_ids(found)]
    assert all(one is None or fits(one, text) for one, text in zip(asked, texts, strict=True))


def test_what_vllm_cannot_verify_is_refused_with_the_reason(engine, prompts, unverifiable):
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="not yet supported with speculative decoding"):
        engine.generate(prompts[:1], sampling(**unverifiable))


def test_what_was_captured_for_the_draft_is_told_from_the_first_step_on(engine, prompts):
    engine.generate(prompts[:1], sampling())
    graphs = engine.control.info().draft_graphs
    assert graphs.captured > 0 < graphs.seconds
    # A pair this small: far below what a mistake in units would give.
    assert graphs.bytes < 8 << 30
