from functools import partial

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from nightjar_kernels import draft_pass, greedy_head
from nightjar_kernels.draft_attention import Heads, Paged
from nightjar_kernels.draft_inputs import Inputs, advance
from nightjar_kernels.draft_pass import Draft, Layer, naive, run
from nightjar_kernels.small_linear import Norm
from nightjar_kernels.tiles import DEFAULT, RowTile, ShareTile

EPS = 1e-6
POSITIONS, BLOCK = 64, 16
SHAPE = {
    "vocab_size": 600,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": POSITIONS,
    "rms_norm_eps": EPS,
    "tie_word_embeddings": False,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
FAMILIES = {
    "llama": LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE),
    "mistral": MistralConfig(**SHAPE, sliding_window=None),
}
# Few programs, for the interpreter's sake.
LARGE = DEFAULT.model_copy(
    update={
        "linear": (
            RowTile(tokens=2, elements=65536, rows=512, programs=1),
            ShareTile(outputs=128, share_inputs=256, warps=4),
        )
    }
)


@pytest.fixture(scope="session", params=FAMILIES)
def model(request):
    """A tiny model of a family, in float32, none of whose weights is what it would be by default."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(FAMILIES[request.param]).eval()
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, mean=1.0 if "norm" in name else 0.0, std=0.15 if weight.dim() > 1 else 0.3)
    return model.requires_grad_(requires_grad=False)


def draft_of(model, dtype):
    """The model's weights as vLLM keeps them."""

    def kept(*matrices):
        return torch.cat(matrices).to(dtype)

    def norm(module):
        return Norm(module.weight.to(dtype), EPS)

    cos, sin = model.model.rotary_emb(torch.zeros(1), torch.arange(POSITIONS)[None])
    half = model.config.head_dim // 2
    rotary = torch.cat([cos[0, :, :half], sin[0, :, :half]], dim=-1)
    layers = []
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        projections = attention.q_proj, attention.k_proj, attention.v_proj
        bias = None if projections[0].bias is None else kept(*(one.bias for one in projections))
        norms = [norm(attention.q_norm), norm(attention.k_norm)] if hasattr(attention, "q_norm") else [None, None]
        layers.append(
            Layer(
                norm(layer.input_layernorm),
                kept(*(one.weight for one in projections)),
                bias,
                Heads(4, 2, 32, rotary, *norms),
                kept(attention.o_proj.weight),
                norm(layer.post_attention_layernorm),
                kept(mlp.gate_proj.weight, mlp.up_proj.weight),
                kept(mlp.down_proj.weight),
            )
        )
    return Draft(kept(model.model.embed_tokens.weight), layers, norm(model.model.norm), kept(model.lm_head.weight))


class Batch:
    """Requests of a draft that has read all but the last two of their tokens."""

    def __init__(self, draft, lengths, dtype):
        generator = torch.Generator().manual_seed(1)
        rows, blocks = len(lengths), POSITIONS // BLOCK
        self.texts = [torch.randint(0, 600, (length,), generator=generator) for length in lengths]
        self.tables = torch.randperm(rows * blocks, generator=generator).reshape(rows, blocks).int()
        self.draft = draft
        self.caches = [torch.zeros(rows * blocks, 2, BLOCK, 64, dtype=dtype) for _ in draft.layers]
        self.parts = 1
        for position in range(max(lengths) - 2):
            reads = [position < length - 2 for length in lengths]
            ids = torch.tensor(
                [int(text[position]) if read else 0 for text, read in zip(self.texts, reads, strict=True)]
            )
            self.run(ids.int(), torch.tensor([position + 1 if read else 0 for read in reads]).int(), 1)

    def run(self, ids, seq_lens, tokens):
        paged = Paged(self.tables, seq_lens)
        return run(self.draft, ids, self.caches, paged, tokens=tokens, parts=self.parts, tiles=LARGE)

    def propose(self, gamma):
        """What a speculator does: a first pass over the last two tokens, then one token a pass."""
        rows = len(self.texts)
        ids = torch.cat([text[-2:] for text in self.texts]).int()
        positions = torch.cat([torch.arange(len(text) - 2, len(text)) for text in self.texts])
        read = Inputs(ids, positions, torch.tensor([len(text) for text in self.texts]).int())
        drafts, columns = torch.full((rows, gamma), -1), torch.zeros(rows, dtype=torch.int32)
        following = Inputs(torch.zeros(rows).int(), torch.zeros(rows).long(), torch.zeros(rows).int())
        for step in range(gamma):
            best = self.run(read.ids, read.seq_lens, 2 if step == 0 else 1)
            advance(best, read, drafts, columns, following, POSITIONS, first=step == 0)
            read = following
        return drafts


def greedy(model, text, gamma):
    for _ in range(gamma):
        text = torch.cat([text, model(text[None]).logits[0, -1:].argmax(dim=-1)])
    return text[-gamma:]


def test_the_specification_is_the_familys_own_model(model):
    ids = torch.randint(0, 600, (POSITIONS,), generator=torch.Generator().manual_seed(2))
    found = naive.logits(draft_of(model, torch.float32), ids)
    torch.testing.assert_close(found, model(ids[None]).logits[0], rtol=1e-4, atol=1e-4)


def test_passes_over_a_cache_propose_what_the_model_would_say(model):
    batch = Batch(draft_of(model, torch.float32), [2, 9, 33], torch.float32)
    expected = torch.stack([greedy(model, text, 4) for text in batch.texts])
    assert torch.equal(batch.propose(4), expected)


@pytest.fixture
def by_kernels(interpreted, monkeypatch):
    """Passes run the Triton kernels, in the interpreter."""
    linear, attention, head = (
        interpreted(f"nightjar_kernels.{name}.triton") for name in ("small_linear", "draft_attention", "greedy_head")
    )
    for name in ("norm_linear", "norm_gate_up", "linear_add"):
        monkeypatch.setattr(draft_pass, name, getattr(linear, name))
    monkeypatch.setattr(draft_pass, "attend", attention.attend)
    # Into what the specification would have filled.
    monkeypatch.setattr(greedy_head.naive, "best_of_head", partial(head.best_of_head, tiles=LARGE))


# With a bias, and with norms of Q and K.
@pytest.mark.parametrize(
    ("model", "dtype"), [("qwen2", torch.bfloat16), ("qwen3", torch.float16)], indirect=["model"], ids=str
)
def test_the_kernels_together_propose_what_the_specification_does(model, dtype, by_kernels, fresh_memory_is_nan):
    draft = draft_of(model, dtype)
    batch = Batch(draft, [2, 3], dtype)
    batch.parts = 2
    drafts = batch.propose(2)
    for text, proposed in zip(batch.texts, drafts, strict=True):
        logits = naive.logits(draft, torch.cat([text, proposed]))[len(text) - 1 : -1]
        # Sums in 16 bits may prefer one of two tokens that are as good as equal, and never one that is not.
        missed = logits.max(dim=-1).values - logits.gather(1, proposed[:, None])[:, 0]
        assert float(missed.max()) < 0.02 * float(logits.std())


def test_weights_are_counted_once(model):
    draft = draft_of(model, torch.float32)
    embedding = draft.embedding.nbytes
    assert draft.bytes_read() == 4 * sum(weight.numel() for weight in model.parameters()) - embedding


def test_more_tokens_than_the_kernels_are_for_are_refused(model):
    draft = draft_of(model, torch.float32)
    paged = Paged(torch.zeros(33, 1, dtype=torch.int32), torch.ones(33, dtype=torch.int32))
    with pytest.raises(ValueError, match="at most 32 tokens are required, found 33"):
        run(draft, torch.zeros(33, dtype=torch.int32), [torch.zeros(1)] * 2, paged, tokens=1, parts=1)
