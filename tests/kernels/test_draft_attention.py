from types import ModuleType

import pytest
import torch

from nightjar_kernels.draft_attention import Heads, Paged, attend, parts_of
from nightjar_kernels.small_linear import Norm
from nightjar_kernels.tiles import DEFAULT, AttentionTile

POSITIONS = 128
EPS = 1e-6


@pytest.fixture(scope="session")
def triton_module(interpreted) -> ModuleType:
    return interpreted("nightjar_kernels.draft_attention.triton")


def tiles_of(tokens):
    return DEFAULT.model_copy(update={"attention": AttentionTile(tokens=tokens, part=128)})


# Contexts below take several tiles, the last of them partly outside.
SMALL = tiles_of(16)


class Case:
    """Random rows of a batch, and a cache of random blocks in random order."""

    def __init__(self, seq_lens, tokens, *, queries=4, kv=2, size=32, block=16, dtype=torch.bfloat16, norm=False):
        generator = torch.Generator().manual_seed(0)

        def made(*shape):
            return torch.randn(*shape, generator=generator).to(dtype)

        norms = [Norm(made(size) + 1, EPS) if norm else None for _ in range(2)]
        angles = torch.arange(POSITIONS)[:, None] * 0.3 ** torch.arange(size // 2)
        rotary = torch.cat([angles.cos(), angles.sin()], dim=-1).to(dtype)
        self.heads = Heads(queries, kv, size, rotary, *norms)
        rows, blocks = len(seq_lens), -(-POSITIONS // block)
        self.qkv = made(rows * tokens, (queries + 2 * kv) * size)
        self.cache = made(rows * blocks, kv, block, 2 * size)
        tables = torch.randperm(rows * blocks, generator=generator).reshape(rows, blocks).int()
        self.paged = Paged(tables, torch.tensor(seq_lens, dtype=torch.int32))
        self.tokens, self.block = tokens, block

    def run(self, implementation, parts=1, order=(0, 1, 2, 3), tiles=SMALL):
        """What it returns and the cache it leaves, which lies in memory in the given order of its dimensions."""
        back = tuple(sorted(range(4), key=order.__getitem__))
        cache = self.cache.permute(order).contiguous().permute(back)
        given = self.qkv, self.heads, cache, self.paged
        return implementation(*given, tokens=self.tokens, parts=parts, tiles=tiles), cache


def assert_close(found, expected):
    assert found.dtype == expected.dtype
    ulp = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found.float(), expected.float(), rtol=2 * ulp, atol=2 * ulp)


def assert_agrees(case, triton_module, parts=1, order=(0, 1, 2, 3)):
    (found, found_cache), (expected, expected_cache) = case.run(triton_module.attend, parts, order), case.run(attend)
    assert_close(found, expected)
    assert_close(found_cache, expected_cache)


@pytest.fixture(autouse=True)
def _poisoned(fresh_memory_is_nan):
    pass


@pytest.mark.parametrize(
    ("dtype", "tokens", "parts", "norm"),
    [
        (torch.bfloat16, 1, 1, False),
        (torch.bfloat16, 1, 3, True),
        (torch.bfloat16, 2, 3, False),
        (torch.bfloat16, 2, 1, True),
        (torch.float16, 1, 3, False),
        (torch.float16, 2, 1, True),
    ],
    ids=str,
)
def test_rows_attend_to_their_context_and_to_themselves(dtype, tokens, parts, norm, triton_module):
    # Nothing before, less than a tile, tiles and a bit, a row that takes no part, and all there is.
    case = Case([tokens, 9, 50, 0, POSITIONS], tokens, norm=norm, dtype=dtype)
    assert_agrees(case, triton_module, parts)


@pytest.mark.parametrize(
    ("tokens", "queries", "kv", "size"), [(2, 14, 2, 64), (1, 16, 8, 128), (2, 32, 8, 64), (2, 8, 1, 32), (1, 3, 3, 80)]
)
def test_heads_of_real_models_and_odd_ones(tokens, queries, kv, size, triton_module):
    assert_agrees(Case([40], tokens, queries=queries, kv=kv, size=size, norm=size == 128), triton_module, parts=2)


# As vLLM's layouts have a layer: by head or by token within a block, and heads outermost.
@pytest.mark.parametrize(
    ("block", "order"), [(8, (0, 2, 1, 3)), (16, (0, 2, 1, 3)), (32, (0, 1, 2, 3)), (64, (1, 0, 2, 3))]
)
def test_blocks_of_any_size_in_any_order(block, order, triton_module):
    assert_agrees(Case([70, 33], 2, block=block), triton_module, order=order)


def test_blocks_that_lie_among_those_of_other_layers(triton_module):
    case = Case([70], 1)
    layers = torch.stack([case.cache, torch.full_like(case.cache, 7)], dim=1)
    found = triton_module.attend(case.qkv, case.heads, layers[:, 0], case.paged, tokens=1, parts=1, tiles=SMALL)
    expected, cache = case.run(attend)
    assert_close(found, expected)
    assert_close(layers[:, 0], cache)
    assert bool((layers[:, 1] == 7).all())


def test_a_batch_of_sixteen(triton_module):
    assert_agrees(Case([2 + 3 * row for row in range(16)], 2, queries=2, kv=1), triton_module)


def test_parts_of_a_context_that_have_nothing_are_left_out(triton_module):
    case = Case([20], 1)
    assert_close(case.run(triton_module.attend, parts=16)[0], case.run(attend)[0])


@pytest.mark.parametrize(("tokens", "parts"), [(32, 1), (64, 3), (128, 2)])
def test_tiles_are_a_matter_of_time_alone(tokens, parts, triton_module):
    case = Case([70, 33], 2)
    assert_close(case.run(triton_module.attend, parts, tiles=tiles_of(tokens))[0], case.run(attend)[0])


def test_a_row_that_takes_no_part_writes_nothing_and_gets_zeros(triton_module):
    case = Case([0, 0], 2)
    for implementation in (attend, triton_module.attend):
        for parts in (1, 2):
            found, cache = case.run(implementation, parts)
            assert torch.equal(cache, case.cache)
            assert torch.equal(found, torch.zeros_like(found))


def test_the_blocks_of_a_row_that_takes_no_part_are_not_looked_at(triton_module):
    """A padded row's table may name blocks that are gone: here, far outside of the cache."""
    for tokens, parts in ((1, 2), (2, 1)):
        case = Case([0, 40, 0], tokens)
        case.paged.tables[[0, 2]] = 1 << 28
        assert_agrees(case, triton_module, parts)


def test_attention_is_pytorchs(triton_module):
    """Without a rotation, over a context of which all is new but what two tokens do not see of each other."""
    case = Case([2], 2, dtype=torch.float32)
    case.heads.rotary[:, :16], case.heads.rotary[:, 16:] = 1, 0
    query, key, value = case.qkv.unflatten(1, (8, 32)).transpose(0, 1).split([4, 2, 2])
    expected = torch.nn.functional.scaled_dot_product_attention(
        query[None], key[None], value[None], is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(case.run(attend)[0], expected[0].transpose(0, 1).flatten(1))


def test_a_cache_of_another_model_is_refused():
    case = Case([5], 1)
    with pytest.raises(ValueError, match=r"K and V, adjacent, of 32 elements each are required, found 1 tokens and"):
        attend(case.qkv, case.heads, case.cache[..., :40], case.paged, tokens=1, parts=1)


def test_a_context_is_split_where_the_device_would_be_idle_and_no_further_than_it_is_worth():
    def parts(rows, kv_heads, longest):
        return parts_of(rows, kv_heads, longest, multiprocessors=132, tiles=tiles_of(64))

    assert parts(rows=1, kv_heads=2, longest=4096) == 32
    assert parts(rows=1, kv_heads=2, longest=32768) == 66
    assert parts(rows=1, kv_heads=2, longest=100) == 1
    assert parts(rows=16, kv_heads=8, longest=32768) == 1
    assert parts_of(rows=16, kv_heads=8, longest=32768, multiprocessors=132) == 1
