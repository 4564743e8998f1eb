"""Weights taken out of vLLM's own models, built here without an engine: they are asked what the family's model says."""

import warnings
from copy import copy
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

from nightjar_kernels.draft_inputs import Inputs, Requests
from nightjar_kernels.draft_pass import naive
from nightjar_kernels.tiles import DEFAULT

with warnings.catch_warnings():
    # Importing vLLM imports parts of torch that warn.
    warnings.simplefilter("ignore")
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import (
        destroy_distributed_environment,
        destroy_model_parallel,
        ensure_model_parallel_initialized,
        init_distributed_environment,
    )
    from vllm.v1.worker.gpu.input_batch import InputBuffers

    from nightjar_engine_patch.gpu.fused_draft import FAMILIES, UnsupportedDraftError, caches_of, draft_of
    from nightjar_engine_patch.gpu.fused_pass import fused_pass_of
    from nightjar_engine_patch.gpu.speculator import GraphedSpeculator

SHAPE = {
    "vocab_size": 600,  # vLLM pads it
    "hidden_size": 128,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 64,
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
CONFIGS = {
    "LlamaForCausalLM": LlamaConfig(**SHAPE, rope_parameters=LLAMA3_ROPE),
    "MistralForCausalLM": MistralConfig(**SHAPE, sliding_window=None),
    "Qwen2ForCausalLM": Qwen2Config(**SHAPE),
    "Qwen3ForCausalLM": Qwen3Config(**SHAPE),
}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """`loaded("Qwen2ForCausalLM")`: the family's own tiny model in float32, and vLLM's with the same weights."""
    config = VllmConfig()
    with set_current_vllm_config(config):
        init_distributed_environment(1, 0, f"file://{tmp_path_factory.mktemp('group')}/init", 0, "gloo")
        ensure_model_parallel_initialized(1, 1)

        def load(family):
            torch.manual_seed(0)
            own = AutoModelForCausalLM.from_config(CONFIGS[family]).eval().requires_grad_(requires_grad=False)
            for name, weight in own.named_parameters():
                torch.nn.init.normal_(weight, mean=1.0 if "norm" in name else 0.0, std=0.15)
            # As much of vLLM's configuration of a model as building it looks at.
            config.model_config = SimpleNamespace(
                hf_config=CONFIGS[family],
                dtype=torch.float32,
                head_dtype=torch.float32,
                is_mm_prefix_lm=False,
                rswa_window=None,
            )
            (kind,) = (one for one in FAMILIES if one.__name__ == family)
            config.compilation_config.static_forward_context.clear()
            vllms = kind(vllm_config=config)
            vllms.load_weights(own.state_dict().items())
            return own, vllms

        yield load
        destroy_model_parallel()
        destroy_distributed_environment()


@pytest.fixture
def wide(monkeypatch):
    """Models in float32, so that a wrong number shows."""
    monkeypatch.setattr("nightjar_engine_patch.gpu.fused_draft.DTYPES", (torch.float32,))


@pytest.mark.parametrize("family", CONFIGS)
def test_the_weights_say_what_the_model_says(family, loaded, wide):
    own, vllms = loaded(family)
    ids = torch.randint(0, 600, (50,), generator=torch.Generator().manual_seed(1))
    found = naive.logits(draft_of(vllms), ids)
    torch.testing.assert_close(found, own(ids[None]).logits[0], rtol=1e-3, atol=1e-3)


def with_lora(layer):
    layer.mlp.gate_up_proj = torch.nn.Identity()


def with_quantisation(layer):
    layer.mlp.down_proj.quant_method = object()


def with_tensor_parallelism(layer):
    layer.self_attn.qkv_proj.tp_size = 2


def with_bias(layer):
    layer.self_attn.o_proj.bias = torch.nn.Parameter(torch.zeros(128))


def with_window(layer):
    layer.self_attn.attn.sliding_window = 16


def with_half_a_rotation(layer):
    # vLLM has one for all models that rotate alike.
    layer.self_attn.rotary_emb = copy(layer.self_attn.rotary_emb)
    layer.self_attn.rotary_emb.rotary_dim = 16


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (with_lora, "gate_up_proj without quantisation or LoRA is required, found Identity"),
        (with_quantisation, "down_proj without quantisation or LoRA is required, found object"),
        (with_tensor_parallelism, "tensor parallelism of 1 is required, found 2"),
        (with_bias, "o_proj without a bias is required, found one"),
        (with_window, "attention to the whole context is required, found a window of 16 tokens"),
        (with_half_a_rotation, "a rotary embedding of whole heads, one half against the other, is required, found"),
    ],
)
def test_what_the_kernels_would_compute_wrongly_is_refused(changed, message, loaded, wide):
    _, vllms = loaded("Qwen2ForCausalLM")
    draft_of(vllms)
    changed(vllms.model.layers[1])
    with pytest.raises(UnsupportedDraftError, match=message):
        draft_of(vllms)


def test_other_models_and_other_types_are_refused(loaded):
    with pytest.raises(UnsupportedDraftError, match=r"LlamaForCausalLM, .* is required, found Identity"):
        draft_of(torch.nn.Identity())
    with pytest.raises(UnsupportedDraftError, match=r"weights of one of .*bfloat16, .* are required, found .*float32"):
        draft_of(loaded("LlamaForCausalLM")[1])


def test_a_cache_of_other_numbers_than_the_weights_is_refused(loaded):
    _, vllms = loaded("LlamaForCausalLM")
    for layer in vllms.model.layers:
        layer.self_attn.attn.kv_cache = torch.zeros(3, 2, 16, 64)
    assert [cache.shape[0] for cache in caches_of(vllms)] == [3, 3]
    vllms.model.layers[1].self_attn.attn.kv_cache = torch.zeros(3, 2, 16, 64, dtype=torch.uint8)
    with pytest.raises(UnsupportedDraftError, match=r"a KV cache of torch\.float32 is required, found torch\.uint8"):
        caches_of(vllms)


def test_a_cache_of_another_shape_than_flash_attentions_is_refused(loaded):
    _, vllms = loaded("LlamaForCausalLM")
    for layer in vllms.model.layers:
        layer.self_attn.attn.kv_cache = torch.zeros(2, 3, 16, 2, 32)
    with pytest.raises(UnsupportedDraftError, match=r"\[blocks, 2, tokens of a block, 64\], .* is required, found"):
        caches_of(vllms)


BLOCK, BLOCKS, GAMMA = 16, 12, 3
NOWHERE = 1 << 20
CPU = torch.device("cpu")


@pytest.fixture
def fused(loaded, wide, monkeypatch):
    """`fused("Qwen2ForCausalLM")`: the family's own model, and the fused pass over vLLM's, with tables of three rows.

    The third is padding: no block has the id that its table names.
    """
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(multi_processor_count=132))

    def make(family, kernel_block_size=None, groups=(0,), block_size=BLOCK):
        own, vllms = loaded(family)
        for layer in vllms.model.layers:
            layer.self_attn.attn.kv_cache = torch.zeros(BLOCKS, 2, BLOCK, 64)
        table = torch.tensor([[7, 2, 9, 4], [1, 8, 0, 5], [NOWHERE] * 4], dtype=torch.int32)
        tables = SimpleNamespace(block_sizes=[block_size] * 2, input_block_tables=[table, table])
        attn = [[SimpleNamespace(kv_cache_group_id=one, kernel_block_size=kernel_block_size)] for one in groups]
        return own, fused_pass_of(vllms, attn, tables, CPU, DEFAULT)

    return make


def read_up_to(fused, texts):
    """All but the last two tokens of each row, one token a pass."""
    rows = len(texts)
    for position in range(max(map(len, texts)) - 2):
        reads = [position < len(text) - 2 for text in texts]
        ids = [int(text[position]) if read else 0 for text, read in zip(texts, reads, strict=True)]
        seq_lens = torch.tensor([(position + 1) * read for read in reads], dtype=torch.int32)
        fused.rank(Inputs(torch.tensor(ids, dtype=torch.int32), torch.zeros(rows), seq_lens), 1, 64)


def speculator_over(texts, slots):
    """As much of it as its passes touch; row by row the requests lie in `slots`, and -1 takes no part."""
    one = object.__new__(GraphedSpeculator)
    most = len(slots)
    one._first, one._next = InputBuffers(most, 2 * most, CPU), InputBuffers(most, most, CPU)
    one._context, one.idx_mapping = 64, torch.tensor(slots)
    one._columns = torch.zeros(most, dtype=torch.int32)
    one.draft_tokens = torch.full((most, GAMMA), -1)
    computed, tokens, newest = torch.zeros(9).int(), torch.zeros(9, 64).int(), torch.zeros(9, 1).long()
    for text, slot in zip(texts, slots, strict=False):
        computed[slot], newest[slot, 0] = len(text) - 1, text[-1]
        tokens[slot, : len(text) - 1] = text[:-1]
    one._requests = Requests(computed, tokens, newest)
    return one


@pytest.mark.parametrize("family", CONFIGS)
def test_a_speculator_with_the_fused_pass_drafts_what_the_model_says(family, fused):
    own, made = fused(family)
    texts = [torch.randint(0, 600, (length,), generator=torch.Generator().manual_seed(length)) for length in (21, 5)]
    read_up_to(made, [*texts, torch.zeros(2)])
    speculator = speculator_over(texts, [6, 3, -1])
    speculator._run_first(3, 6, None, None, rank=lambda read: made.rank(read, 2, 64))
    for _ in range(GAMMA - 1):
        speculator._run_next(3, 3, None, None, rank=lambda read: made.rank(read, 1, 64))
    for row, text in enumerate(texts):
        whole = torch.cat([text, speculator.draft_tokens[row]])
        said = own(whole[None]).logits[0].argmax(dim=-1)
        assert torch.equal(said[len(text) - 1 : -1], whole[len(text) :])


def test_padding_writes_no_kv_and_reads_no_block(fused):
    _, made = fused("LlamaForCausalLM")
    texts = [torch.arange(21), torch.arange(5)]
    read_up_to(made, [*texts, torch.zeros(2)])
    speculator = speculator_over(texts, [6, -1, -1])
    before = [cache.clone() for cache in made.caches]
    speculator._run_first(3, 6, None, None, rank=lambda read: made.rank(read, 2, 64))
    speculator._run_next(3, 3, None, None, rank=lambda read: made.rank(read, 1, 64))
    assert speculator._next.seq_lens.tolist() == [23, 0, 0]
    for cache, was in zip(made.caches, before, strict=True):
        written = (cache != was).any(dim=-1).any(dim=1)
        # The last two tokens and a draft, in the second block of the first row.
        assert written.nonzero().tolist() == [[2, 3], [2, 4], [2, 5]]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"groups": (0, 1)}, "KV of all layers in one group is required, found 2 groups"),
        ({"kernel_block_size": 8}, r"blocks of 16 tokens, .* are required .*, found \[8, 16\]"),
        ({"block_size": 32}, r"blocks of 32 tokens, .* are required .*, found \[16, 32\]"),
    ],
)
def test_block_tables_that_name_other_blocks_than_the_kernels_read_are_refused(changed, message, fused):
    with pytest.raises(UnsupportedDraftError, match=message):
        fused("LlamaForCausalLM", **changed)
