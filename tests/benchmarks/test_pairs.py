import hashlib
import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, LlamaForCausalLM

from nightjar_benchmarks.pairs import (
    TINY,
    ModelShape,
    PairShape,
    draft_agrees,
    expected_continuation,
    load_pair,
    make_pair,
    random_prompt,
)
from nightjar_benchmarks.pairs import graph as graphs
from nightjar_benchmarks.pairs.weights import bf16

AGREEMENT = (0.9, 0.6)
COUNT = 300


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_pair(tmp_path_factory.mktemp("pair"), TINY, AGREEMENT, seed=3)


@pytest.fixture(scope="module")
def target(pair):
    return LlamaForCausalLM.from_pretrained(pair.target, dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def draft(pair):
    return LlamaForCausalLM.from_pretrained(pair.draft, dtype=torch.bfloat16)


def greedy(model, prompt, count):
    output = model.generate(torch.tensor([prompt]), max_new_tokens=count, min_new_tokens=count, do_sample=False)
    return output[0, len(prompt) :].tolist()


def file_digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("region", [0, 1])
def test_greedy_output_of_the_target_is_what_the_reference_predicts(pair, target, region):
    prompt = random_prompt(pair, region, 64, seed=region)
    expected = expected_continuation(pair, prompt, COUNT)
    assert greedy(target, prompt, COUNT) == expected
    assert len(set(expected)) > COUNT // 3, "a short cycle would hide stale KV entries"
    assert {int(pair.graph.regions[token]) for token in expected} == {region}


@pytest.mark.parametrize("region", [0, 1])
def test_the_draft_agrees_as_often_as_asked_and_where_predicted(pair, draft, region):
    agreed = []
    for seed in range(3):
        prompt = random_prompt(pair, region, 64, seed)
        text = expected_continuation(pair, prompt, COUNT)
        with torch.no_grad():
            logits = draft(torch.tensor([prompt + text])).logits[0, len(prompt) - 1 : -1]
        found = (logits.argmax(-1) == torch.tensor(text)).tolist()
        assert found == draft_agrees(pair, prompt, text)
        agreed += found
    assert np.mean(agreed) == pytest.approx(AGREEMENT[region], abs=0.05)


@pytest.mark.parametrize("offset", TINY.offsets)
def test_a_lost_kv_entry_at_a_used_offset_changes_the_next_token(pair, target, offset):
    def is_decisive(prompt):
        classes = pair.graph.classes[[prompt[-1 - back] for back in TINY.offsets]].tolist()
        rest = sum(classes) - classes[TINY.offsets.index(offset)]
        return rest == 0

    prompt = next(p for p in (random_prompt(pair, 0, 80, seed) for seed in range(99)) if is_decisive(p))
    expected = expected_continuation(pair, prompt, 1)[0]
    lost = len(prompt) - 1 - offset
    assert next_token(target, prompt, lost=None) == expected
    changed = {next_token(target, prompt, lost, class_sign=sign) for sign in (-1, 1)}
    assert changed - {expected}, "the other class at this position must lead to another token"


def next_token(model, prompt, lost, class_sign=1):
    """The next token when the value of position `lost` is replaced by a class of this sign."""
    with torch.no_grad():
        cache = model(torch.tensor([prompt[:-1]])).past_key_values
        if lost is not None:
            cache.layers[0].values[:, :, lost] = 0
            cache.layers[0].values[:, :, lost, 0] = class_sign
        return int(model(torch.tensor([prompt[-1:]]), past_key_values=cache).logits[0, -1].argmax())


def test_a_cache_with_zeroed_positions_is_noticed(pair, target):
    prompts = [random_prompt(pair, 0, 80, seed) for seed in range(6)]
    noticed = [continue_with_zeroed(target, p, 16) != expected_continuation(pair, p, 16) for p in prompts]
    assert all(noticed)


def continue_with_zeroed(model, prompt, count):
    """Greedy tokens after a prompt whose last 20 cached positions were lost."""
    tokens = list(prompt)
    with torch.no_grad():
        cache = model(torch.tensor([prompt[:-1]])).past_key_values
        for layer in cache.layers:
            layer.keys[:, :, -20:] = 0
            layer.values[:, :, -20:] = 0
        for _ in range(count):
            logits = model(torch.tensor([tokens[-1:]]), past_key_values=cache).logits
            tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_the_best_logit_is_far_above_the_second(pair, target):
    prompt = random_prompt(pair, 0, 64, seed=5)
    text = expected_continuation(pair, prompt, COUNT)
    with torch.no_grad():
        logits = target(torch.tensor([prompt + text])).logits[0, len(prompt) - 1 :].float()
    best, second = logits.topk(2).values.unbind(-1)
    assert ((best - second) / best).min() > 0.15


def test_batching_does_not_change_the_output(pair, target):
    prompts = [random_prompt(pair, 0, 64, seed) for seed in range(5)]
    output = target.generate(torch.tensor(prompts), max_new_tokens=40, min_new_tokens=40, do_sample=False)
    assert output[:, 64:].tolist() == [expected_continuation(pair, prompt, 40) for prompt in prompts]


def test_the_same_arguments_give_the_same_bytes_and_another_seed_others(pair, tmp_path):
    same = make_pair(tmp_path / "same", TINY, AGREEMENT, seed=3)
    other = make_pair(tmp_path / "other", TINY, AGREEMENT, seed=4)
    assert file_digests(same.folder) == file_digests(pair.folder)
    weights = "target/model.safetensors"
    assert file_digests(other.folder)[weights] != file_digests(pair.folder)[weights]


def test_a_complete_folder_is_kept_and_an_incomplete_one_made_anew(tmp_path):
    made = make_pair(tmp_path, TINY, [1.0], seed=0)
    weights = made.draft / "model.safetensors"
    before = weights.stat().st_mtime_ns
    make_pair(tmp_path, TINY, [1.0], seed=0)
    assert weights.stat().st_mtime_ns == before
    (tmp_path / "pair.json").unlink()
    make_pair(tmp_path, TINY, [1.0], seed=0)
    assert weights.stat().st_mtime_ns != before


def test_a_pair_is_read_back_as_it_was_made(pair):
    assert load_pair(pair.folder) == pair


def test_a_record_of_another_format_is_refused(pair, tmp_path):
    record = json.loads((pair.folder / "pair.json").read_text())
    (tmp_path / "pair.json").write_text(json.dumps(record | {"format": 0}))
    with pytest.raises(ValueError, match="format 2 is required, found 0"):
        load_pair(tmp_path)


def test_text_survives_the_tokenizer(pair):
    tokenizer = AutoTokenizer.from_pretrained(pair.target)
    text = "def naïve(x):\n    return '∑' + x  # two  spaces\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer) == TINY.vocab_size


def test_a_short_prompt_is_refused(pair):
    with pytest.raises(ValueError, match="at least 62 tokens are required, found 61"):
        expected_continuation(pair, [1] * 61, 1)


def test_a_model_too_narrow_for_its_vocabulary_is_refused(tmp_path):
    narrow = ModelShape(hidden=64, layers=1, heads=4, kv_heads=4, head_dim=32, intermediate=64)
    with pytest.raises(ValueError, match="raise hidden or lower vocab_size"):
        make_pair(tmp_path, PairShape(vocab_size=4096, target=narrow, draft=narrow), [1.0], seed=0)


def test_too_few_heads_are_refused():
    with pytest.raises(ValueError, match="at least 3"):
        ModelShape(hidden=256, layers=1, heads=2, kv_heads=1, head_dim=32, intermediate=64)


@pytest.mark.parametrize(("agreement", "message"), [([1.1], "shares from 0 to 1"), ([], "1 to 63 regions")])
def test_an_impossible_agreement_is_refused(agreement, message):
    with pytest.raises(ValueError, match=message):
        graphs.build(512, agreement, seed=0)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(512, 3000),
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_successors_stay_in_their_region_and_half_and_differ_as_often_as_asked(size, agreement, seed):
    built = graphs.build(size, agreement, seed)
    regular = built.regions >= 0
    for table in (built.target, built.draft):
        for half in (0, 1):
            assert (built.halves[table[half]] == half).all()
            assert (built.regions[table[half]][regular] == built.regions[regular]).all()
    for region, share in enumerate(agreement):
        members = built.regions == region
        for half in (0, 1):
            same = (built.target[half] == built.draft[half])[members]
            assert same.mean() == pytest.approx(share, abs=1 / members.sum())
            assert np.bincount(built.target[half][members]).max() == 2


@given(st.floats(-(2.0**100), 2.0**100, width=32))
def test_rounding_to_bfloat16_is_torchs(value):
    ours = int(bf16(np.array([value], np.float32))[0])
    theirs = torch.tensor([value], dtype=torch.float32).to(torch.bfloat16).view(torch.uint16)
    assert ours == int(theirs[0])


def test_offsets_that_cannot_have_a_majority_are_refused():
    with pytest.raises(ValueError, match="3 different ones from 1 are required"):
        PairShape(vocab_size=512, target=TINY.target, draft=TINY.draft, offsets=(1, 1, 5))


def test_other_offsets_make_shorter_prompts_predictable(tmp_path):
    shape = PairShape(vocab_size=1024, target=TINY.target, draft=TINY.draft, offsets=(1, 4, 9))
    pair = make_pair(tmp_path, shape, [1.0], seed=0)
    model = LlamaForCausalLM.from_pretrained(pair.target, dtype=torch.float32)
    prompt = random_prompt(pair, 0, shape.context_tokens, seed=0)
    assert greedy(model, prompt, 100) == expected_continuation(pair, prompt, 100)
