"""What is made of the answers of engines that chose a draft pass; the answers here are made up."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from nightjar_benchmarks.goals import GOALS
from nightjar_benchmarks.gpu_engine.pairs import SMALL, write_pair
from nightjar_benchmarks.gpu_fused import agreement, drafts, figures, measure
from nightjar_benchmarks.pairs import Pair
from nightjar_kernels.draft_inputs import Best

with warnings.catch_warnings():
    # Importing vLLM imports parts of torch that warn.
    warnings.simplefilter("ignore")
    from nightjar_engine_patch.gpu import fused_pass


def row(requests, tokens, context, vllm_us, fused_us):
    path = "fused" if fused_us < vllm_us else "vllm"
    return {
        "requests": requests,
        "tokens": tokens,
        "context": context,
        "long_contexts": context > 2000,
        "path": path,
        "vllm_us": vllm_us,
        "fused_us": fused_us,
    }


CHOSEN = {
    "passes": [
        row(1, 2, 552, 1300, 700),
        row(1, 1, 552, 1200, 600),
        row(1, 1, 4096, 1250, 800),
        row(16, 1, 552, 9, 10),
    ],
    "refusal": "",
}
AGAIN = {
    "passes": [
        row(1, 2, 552, 1300, 700),
        row(1, 1, 552, 1200, 600),
        row(1, 1, 4096, 1000, 1250),
        row(16, 1, 552, 10, 9),
    ],
    "refusal": "",
}
REFUSED = {"passes": [], "refusal": "no such draft"}


def test_vllms_pass_is_compared_where_one_request_drafts_on_with_a_short_context():
    assert figures.against_vllms_pass(CHOSEN).value == 2.0


def test_a_choice_is_judged_by_the_times_of_another_start():
    found = figures.worst_of_the_choice(CHOSEN, AGAIN)
    # Chosen to be fused, and slower the second time; what stayed vLLM's loses nothing to vLLM's.
    assert found.value == 0.8
    assert [one["ratio"] for one in found.raw["chosen"]] == [pytest.approx(13 / 7, abs=1e-4), 2.0, 0.8, 1.0]


def test_an_engine_that_had_nothing_to_choose_gives_no_figure_but_its_reason():
    for call in (
        lambda: figures.against_vllms_pass(REFUSED),
        lambda: figures.worst_of_the_choice(CHOSEN, REFUSED),
        lambda: figures.worst_of_the_choice(REFUSED, AGAIN),
    ):
        with pytest.raises(ValueError, match="no such draft"):
            call()


class FakeEngine:
    """Steps of 5 ms, and 1 ms for each draft."""

    def ask(self, **command):
        if command.get("do") == "passes":
            return CHOSEN
        gamma = command["verify"]
        return {
            "steady_ms": {"median": 5.0 + gamma},
            "acceptance_length": 2.8,
            "forward_ms": {"median": 5.0},
            "draft_ms": {"median": float(gamma)},
        }

    def receive(self):
        return {}

    def stop(self):
        pass


def test_every_figure_of_the_topic_is_measured(tmp_path, monkeypatch):
    pair = Pair(tmp_path / "big", SMALL, (0.77,), 0)
    monkeypatch.setattr(measure, "write_pair", lambda *_: pair)
    started = []

    def remote(name, arguments, log, module):
        started.append((name, module))
        return FakeEngine()

    monkeypatch.setattr(measure, "Remote", remote)
    found = {}
    for part in (measure.shapes, measure.serving):
        part(tmp_path, lambda _, new: found.update(new))
    assert found["gamma3_vs_no_draft_b1"].value == pytest.approx(2.8 * 5 / 8)
    assert found["gamma3_vs_no_draft_b1"].raw["at_acceptance_length_2.4"] == pytest.approx(2.4 * 5 / 8)
    by_themselves = {"pass_ms_b1", "pass_ms_b4", "pass_ms_b8", "pass_ms_b1_4k"}
    goals = {goal.name: goal.unit for goal in GOALS if goal.topic == "fused_draft" and goal.name not in by_themselves}
    assert {name: figure.unit for name, figure in found.items()} == goals
    assert [name for name, _ in started] == ["llama_1b", "qwen3_06b", "nightjar", "stock", "05b"]


@pytest.mark.parametrize("name", drafts.SHAPES)
def test_shapes_are_of_families_that_have_a_fused_pass_and_share_a_vocabulary_with_their_target(name, tmp_path):
    target, draft = (AutoConfig.from_pretrained(path) for path in drafts.write_shapes(tmp_path, name, 4096))
    assert draft.architectures[0] in ("LlamaForCausalLM", "Qwen3ForCausalLM")
    assert target.vocab_size == draft.vocab_size
    assert draft.head_dim == drafts.SHAPES[name][1].head_dim


def test_a_lively_drafts_layers_have_a_say_and_its_context_heads_are_the_made_drafts(tmp_path):
    made = load_file(write_pair(tmp_path / "made", SMALL).draft / "model.safetensors")
    lively = load_file(drafts.write_lively_draft(tmp_path / "lively", SMALL) / "model.safetensors")
    changed = {name for name, weight in lively.items() if not torch.equal(weight, made[name])}
    layers = [f"model.layers.{layer}." for layer in range(SMALL.draft.layers)]
    outs = [layer + "self_attn.o_proj.weight" for layer in layers[1:]]
    assert changed == {*outs, *(layer + "mlp.down_proj.weight" for layer in layers)}
    assert all(weight.any() for weight in lively.values())


class Drafter:
    """As much of a speculator as reading texts takes: its pass says what stands two tokens before the one it reads."""

    def __init__(self, rows, blocks):
        self.device, self.model, self.attn_groups = torch.device("cpu"), None, None
        self.idx_mapping = torch.full((rows,), -1)
        self.kv_cache_config = SimpleNamespace(num_blocks=blocks)
        tables = [torch.zeros(rows, 8, dtype=torch.int32) for _ in range(2)]
        self.block_tables = SimpleNamespace(
            block_sizes=[16], block_tables=[SimpleNamespace(gpu=tables[0])], input_block_tables=tables[1:]
        )
        self._next = SimpleNamespace(
            input_ids=torch.zeros(rows, dtype=torch.int32),
            positions=torch.zeros(rows, dtype=torch.int64),
            seq_lens=torch.zeros(rows, dtype=torch.int32),
        )
        self.kv = torch.zeros(blocks * 16, dtype=torch.int32)
        self.tiles = SimpleNamespace(tiles=None)

    def rank(self, read, *, wrong=False):
        table = self.block_tables.input_block_tables[0][: len(read.ids)]
        rows = torch.arange(len(read.ids))

        def slot(position):
            return table[rows, position // 16].long() * 16 + position % 16

        self.kv[slot(read.positions)] = read.ids
        said = self.kv[slot((read.positions - 2).clamp(min=0))] + int(wrong)
        return Best(torch.tensor([[0.0, 1.0]]).expand(len(rows), 2), torch.stack([said * 0, said], dim=1))

    def _run_and_rank(self, _, read, tokens, *__):
        assert tokens == 1
        return self.rank(read)

    def _run_eagerly(self, run, _, starts):
        run(len(starts) - 1, int(starts[-1]), None, None)


@pytest.mark.parametrize("wrong", [False, True])
def test_both_passes_read_the_same_texts_token_by_token(wrong, monkeypatch):
    drafter = Drafter(5, 60)
    fused = SimpleNamespace(rank=lambda read, *_: drafter.rank(read, wrong=wrong))
    monkeypatch.setattr(fused_pass, "fused_pass_of", lambda *_: fused)
    worker = SimpleNamespace(model_runner=SimpleNamespace(speculator=drafter))
    found = agreement.greedy_by_both(worker, 4, 100, list(range(50, 90)))
    vllms, fuseds = (np.array(found[name]) for name in ("vllm", "fused"))
    assert vllms.shape == (4, 100)
    assert (fuseds - vllms == wrong).all()
    texts = np.random.default_rng(0).choice(list(range(50, 90)), (4, 100))
    assert (vllms[:, 2:] == texts[:, :-2]).all()
    assert drafter.idx_mapping.eq(-1).all()


def test_more_texts_than_there_is_room_for_are_refused():
    worker = SimpleNamespace(model_runner=SimpleNamespace(speculator=Drafter(5, 8)))
    with pytest.raises(ValueError, match="28 blocks are required, found 7"):
        agreement.greedy_by_both(worker, 4, 100, [1, 2])
    with pytest.raises(ValueError, match="at most 32 rows are required, found 33"):
        agreement.greedy_by_both(worker, 33, 100, [1, 2])
