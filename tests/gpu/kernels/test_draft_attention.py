import pytest
import torch

from nightjar_kernels.draft_attention import Heads, Paged, attend, parts_of
from nightjar_kernels.small_linear import Norm

POSITIONS = 32768
# Query heads, KV heads, their size, whether they are normalised.
HEADS = [(14, 2, 64, False), (16, 8, 128, True), (32, 8, 64, False)]
# Parts, tokens and precision: any two of them meet, here and, heads in turn, with every kind of heads.
KINDS = [
    *[(1, 1, torch.bfloat16), (1, 2, torch.float16), (1, 2, torch.bfloat16)],
    *[(4, 2, torch.float16), (4, 1, torch.bfloat16), (4, 1, torch.float16)],
]


def on(device, heads, paged):
    def moved(norm):
        return norm and Norm(norm.weight.to(device), norm.eps)

    return (
        Heads(
            heads.queries,
            heads.kv,
            heads.size,
            heads.rotary.to(device),
            moved(heads.query_norm),
            moved(heads.key_norm),
        ),
        Paged(paged.tables.to(device), paged.seq_lens.to(device)),
    )


def assert_agrees(seq_lens, tokens, parts, *, queries=14, kv=2, size=64, block=16, dtype=torch.bfloat16, norm=False):
    torch.manual_seed(0)
    rows, blocks = len(seq_lens), -(-max(seq_lens) // block)
    angles = torch.arange(max(seq_lens))[:, None] * 1e6 ** (-torch.arange(size // 2) / (size // 2))
    norms = [Norm(torch.randn(size).to(dtype) + 1, 1e-6) if norm else None for _ in range(2)]
    rotary = torch.cat([angles.cos(), angles.sin()], dim=-1).to(dtype)
    heads = Heads(queries, kv, size, rotary, *norms)
    tables = torch.randperm(rows * blocks).reshape(rows, blocks).int()
    paged = Paged(tables, torch.tensor(seq_lens, dtype=torch.int32))
    qkv = torch.randn(rows * tokens, (queries + 2 * kv) * size).to(dtype)
    # By token within a block, beside another layer: as vLLM's BLNHC.
    layers = torch.randn(rows * blocks, 2, block, kv, 2 * size).to(dtype)
    found_layers = layers.cuda()
    expected = attend(qkv, heads, layers[:, 0].transpose(1, 2), paged, tokens=tokens, parts=1)
    there = on("cuda", heads, paged)
    found = attend(qkv.cuda(), there[0], found_layers[:, 0].transpose(1, 2), there[1], tokens=tokens, parts=parts)
    ulp = torch.finfo(dtype).eps
    # Weights of a softmax are rounded before they are multiplied.
    torch.testing.assert_close(found.float().cpu(), expected.float(), rtol=4 * ulp, atol=4 * ulp)
    torch.testing.assert_close(found_layers.float().cpu(), layers.float(), rtol=2 * ulp, atol=2 * ulp)


@pytest.mark.parametrize(("heads", "kind"), list(zip(HEADS * 2, KINDS, strict=True)), ids=str)
def test_heads_of_real_models(heads, kind):
    (queries, kv, size, norm), (parts, tokens, dtype) = heads, kind
    shape = {"queries": queries, "kv": kv, "size": size, "norm": norm, "dtype": dtype}
    assert_agrees([tokens, 300, 0, 64, 129], tokens, parts, **shape)


@pytest.mark.parametrize(("rows", "tokens"), [(1, 2), (4, 1), (16, 2)])
def test_batches(rows, tokens):
    assert_agrees([2 + 61 * row for row in range(rows)], tokens, 2)


@pytest.mark.parametrize("block", [32, 64, 128])
def test_blocks_of_any_size(block):
    assert_agrees([1000], 2, 3, block=block)


@pytest.mark.parametrize("seq_len", [1, 512, 4096, POSITIONS])
def test_contexts_of_any_length(seq_len):
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    assert_agrees([seq_len], 1, parts_of(1, 2, seq_len, multiprocessors))
