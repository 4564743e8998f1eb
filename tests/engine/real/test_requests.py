"""Everything a client may ask for works beside a draft; and the engine never depends on the sidecar."""

from itertools import pairwise

import grpc
import pytest
from tokenizers import Tokenizer

from nightjar_api.engine.v1 import engine_pb2
from nightjar_benchmarks.pairs import expected_continuation, random_prompt

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]


@pytest.fixture
def prompt(pair):
    return random_prompt(pair, 0, 100, 21)


def verified(reports):
    return sum(report.verified_tokens for report in reports)


def test_sampled_requests_get_their_tokens_and_a_seed_repeats_them(crowded, prompt):
    with crowded.watched() as reports:
        crowded.plan(hold=3)
        # Which tokens a seed gives depends on the lengths of the steps; after this both find the same prefix cache.
        crowded.token_ids(prompt, 80)
        fields = {"temperature": 1.0, "top_p": 0.9, "seed": 5}
        first, second = (crowded.token_ids(prompt, 80, **fields) for _ in range(2))
        other = crowded.token_ids(prompt, 80, temperature=2.0, seed=6)
    assert verified(reports) > 60
    assert first == second
    assert len(first) == len(other) == 80
    assert all(0 <= token < 2048 for token in first + other)
    assert other != expected_continuation(crowded.pair, prompt, 80), "it was sampled"


@pytest.mark.parametrize("fields", [{"temperature": 0.02}, {"temperature": 2.0, "top_k": 1}])
def test_settings_that_leave_one_choice_give_the_greedy_tokens(crowded, prompt, fields):
    """Temperature and top-k reach the verified positions, not only the one behind them."""
    crowded.plan(hold=4)
    assert crowded.token_ids(prompt, 80, **fields) == expected_continuation(crowded.pair, prompt, 80)


def test_sampled_and_greedy_requests_share_a_batch(crowded, crowd):
    crowded.plan(hold=3)
    made = [(*request, {"temperature": 2.0} if i % 2 else {}) for i, request in enumerate(crowd([0, 1], 16, 31))]
    received = crowded.all_token_ids(made)
    for (prompt, tokens, fields), found in zip(made, received, strict=True):
        assert len(found) == tokens
        assert fields or found == expected_continuation(crowded.pair, prompt, tokens)


def test_logprobs_are_given_for_every_token_and_are_those_without_a_draft(crowded, prompt):
    answers = {}
    for gamma in (3, 0):
        with crowded.watched() as reports:
            crowded.plan(hold=gamma)
            answers[gamma] = crowded.complete(prompt, 60, logprobs=3, return_tokens_as_token_ids=True)
        assert (verified(reports) > 30) == (gamma > 0)
    for answer in answers.values():
        assert answer["token_ids"] == expected_continuation(crowded.pair, prompt, 60)
        assert len(answer["logprobs"]["token_logprobs"]) == 60
        assert all(len(top) >= 3 for top in answer["logprobs"]["top_logprobs"])
    with_draft, without = (answers[gamma]["logprobs"]["token_logprobs"] for gamma in (3, 0))
    assert with_draft == pytest.approx(without, abs=0.05)


def test_structured_output_is_valid_although_drafts_know_nothing_of_the_grammar(crowded, prompt, grammars, fits):
    with crowded.watched() as reports:
        crowded.plan((0, 3), (3, 4), hold=5)
        made = [(prompt, 80, {"ignore_eos": False, "structured_outputs": grammar}) for grammar in grammars]
        made = [*made, (prompt, 80, {})] * 3
        texts = [choice["text"] for choice in crowded.all_choices(made)]
    assert verified(reports) > 50
    for (_, _, fields), text in zip(made, texts, strict=True):
        assert "structured_outputs" not in fields or fits(fields["structured_outputs"], text)


def test_what_steers_a_request_gives_the_tokens_without_speculation(crowded, prompt, steering):
    """Each position that is verified counts the drafts before it."""
    continuation = expected_continuation(crowded.pair, prompt, 40)
    # So that repetition has something to punish; what comes next is decided by the end.
    given = continuation + prompt
    fields = steering(continuation)
    crowded.plan(hold=0)
    plain = crowded.token_ids(given, 40, **fields)
    assert plain != continuation, "it made a difference"
    with crowded.watched() as reports:
        crowded.plan(*[(3, 2), (0, 1), (5, 2), (1, 1)] * 20, hold=4)
        assert crowded.all_token_ids([(given, 40, fields)] * 4) == [plain] * 4
    assert verified(reports) > 40


def test_words_that_are_forbidden_stay_so_with_drafts_that_say_them(crowded, prompt):
    tokenizer = Tokenizer.from_file(str(crowded.pair.target / "tokenizer.json"))
    continuation = expected_continuation(crowded.pair, prompt, 40)
    words = [word for token in continuation[2:30] if usable(tokenizer, word := tokenizer.decode([token]), token)]
    assert words
    crowded.plan(hold=0)
    plain = crowded.token_ids(prompt, 40, bad_words=words[:3])
    assert plain != continuation
    crowded.plan(hold=4)
    assert crowded.token_ids(prompt, 40, bad_words=words[:3]) == plain


def usable(tokenizer, word, token):
    """The word's tokens are this one alone, so that forbidding the word forbids the token."""
    return tokenizer.encode(word, add_special_tokens=False).ids == [token]


def test_what_vllm_cannot_verify_is_refused_with_the_reason(crowded, prompt, unverifiable):
    answer = crowded.client.post("/v1/completions", json=crowded.body(prompt, 4, **unverifiable))
    assert answer.status_code == 400
    assert "not yet supported with speculative decoding" in answer.text


def test_several_choices_penalties_and_stops_are_served(crowded, prompt):
    crowded.plan(hold=4)
    body = crowded.body(prompt, 40, n=3, temperature=1.0, presence_penalty=0.5)
    choices = crowded.client.post("/v1/completions", json=body).json()["choices"]
    assert [len(choice["token_ids"]) for choice in choices] == [40] * 3
    greedy = expected_continuation(crowded.pair, prompt, 40)
    stopped = crowded.token_ids(prompt, 40, stop_token_ids=[greedy[17]])
    assert stopped == greedy[: greedy.index(greedy[17]) + 1]


def test_an_expired_plan_falls_back_and_serving_goes_on(crowded, prompt):
    expected = expected_continuation(crowded.pair, prompt, 100)

    def fell_back():
        # Prompts alone ask for no plan: their steps name that of the last step that did.
        return any(report.plan_version == 0 for report in reports if report.decode_batch)

    with crowded.watched() as reports:
        # Long enough for a step even where this machine has something else to do.
        version = crowded.plan(hold=4, ttl_ms=2000)
        crowded.until(fell_back, meanwhile=lambda: crowded.check(prompt, expected))
        crowded.check(prompt, expected)
    obeyed = [(report.plan_version, report.gamma_drafted) for report in reports if report.decode_batch]
    assert set(obeyed) == {(version, 4), (0, crowded.info.fallback_gamma)}
    assert obeyed == sorted(obeyed, reverse=True), "once expired, it stays so"
    assert crowded.info.plan_version == version
    assert crowded.info.fallback_gamma == 1


def test_a_new_plan_is_obeyed_in_the_middle_of_a_request(crowded, prompt):
    """Plans come until one has met clients whose requests had begun and went on."""
    made = [(prompt, tokens) for tokens in (400, 310, 170)]
    received, planned = [], {}

    def decoding():
        return [report for report in reports if report.decode_batch]

    def met_in_the_middle():
        return any(
            before.gamma_drafted < after.gamma_drafted and after.prefill_tokens == 0
            for before, after in pairwise(decoding())
        )

    def plan_and_await(gamma):
        version = crowded.plan(hold=gamma)
        planned[version] = gamma
        crowded.until(lambda: any(report.plan_version == version for report in decoding()))

    with crowded.watched() as reports, crowded.busy(made, len(made), received):
        while not met_in_the_middle():
            plan_and_await(0)
            plan_and_await(5)
    versions = [report.plan_version for report in decoding() if report.plan_version in planned]
    assert versions == sorted(versions)
    assert set(versions) == planned.keys()
    for report in decoding():
        assert report.gamma_drafted == planned.get(report.plan_version, report.gamma_drafted)
    for asked, tokens in received:
        assert tokens == expected_continuation(crowded.pair, asked, len(tokens))


def test_a_reader_that_never_reads_slows_nothing(crowded, crowd):
    crowded.plan(hold=2)
    stream = crowded.stub.WatchSteps(engine_pb2.WatchStepsRequest(max_delay_ms=1))
    made = crowd([0, 1], 16, 41)
    assert crowded.all_token_ids(made) == [expected_continuation(crowded.pair, *request) for request in made]
    stream.cancel()
    with pytest.raises(grpc.FutureCancelledError):
        stream.result(10)


def test_the_engine_says_what_it_is(crowded, prompt):
    # What its workers know it tells from the first step on.
    crowded.token_ids(prompt, 2)
    info = crowded.info
    assert (info.vllm_version.partition("+")[0], info.runner) == ("0.32.0", "cpu-v1")
    assert (info.gamma_max, info.max_batch, info.block_tokens, info.tensor_parallel_size) == (5, 8, 32, 1)
    target, draft = (getattr(crowded.pair.shape, name) for name in ("target", "draft"))
    # Keys and values of two bytes each, over the layers of both models.
    per_token = [2 * 2 * model.layers * model.kv_heads * model.head_dim for model in (target, draft)]
    assert (info.block_bytes, info.draft_block_bytes) == (32 * sum(per_token), 32 * per_token[1])
    assert info.draft_weight_bytes > 0
    assert "a GPU is required" in info.fused_draft_refusal
    assert not info.draft_passes
