from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_kernels.kv_migrate import cache_view, migrate_blocks
from nightjar_kernels.moves import BlockMoves, block_moves

Migrate = Callable[[torch.Tensor, BlockMoves], None]

BLOCKS = 11
LAYERS = 3
DTYPES = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint8]


def random_bytes(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def block_outer(data: torch.Tensor, page: int) -> torch.Tensor:
    return data[: BLOCKS * LAYERS * page].view(1, BLOCKS, LAYERS * page)


def block_outer_by_layer(data: torch.Tensor, page: int) -> torch.Tensor:
    return data[: BLOCKS * LAYERS * page].view(BLOCKS, LAYERS, page).transpose(0, 1)


def layer_outer(data: torch.Tensor, page: int) -> torch.Tensor:
    return data[: BLOCKS * LAYERS * page].view(LAYERS, BLOCKS, page)


def target_beside_draft(data: torch.Tensor, page: int) -> torch.Tensor:
    """Each block holds another model's pages too, which must not move."""
    block = (LAYERS + 1) * page
    return data[: BLOCKS * block].view(BLOCKS, LAYERS + 1, page)[:, 1:].transpose(0, 1)


def padded_pages(data: torch.Tensor, page: int) -> torch.Tensor:
    """Pages that neither touch each other nor start on a word."""
    stride = page + 2
    start = data[2 : 2 + LAYERS * BLOCKS * stride]
    return start.view(LAYERS, BLOCKS, stride)[:, :, :page]


LAYOUTS = [block_outer, block_outer_by_layer, layer_outer, target_beside_draft, padded_pages]


@pytest.fixture(scope="session")
def triton_module(interpreted: Callable[[str], ModuleType]) -> ModuleType:
    module = interpreted("nightjar_kernels.kv_migrate.triton")
    # Small enough that every shape below takes several tiles, the last of them partly outside.
    module.TILE_BYTES = 32
    return module


@pytest.fixture(params=["public", "triton"])
def migrate(request: pytest.FixtureRequest, triton_module: ModuleType) -> Migrate:
    return migrate_blocks if request.param == "public" else triton_module.migrate_blocks


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("page", [2, 36, 64, 126])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_destinations_get_their_sources_and_nothing_else_changes(layout, page, dtype, migrate: Migrate):
    data = random_bytes(4 * 128 * BLOCKS * LAYERS)
    expected = data.clone()
    pairs = [(10, 0), (4, 3), (7, 5)]
    for region in range(LAYERS if layout(data, page).shape[0] > 1 else 1):
        for old, new in pairs:
            layout(expected, page)[region, new] = layout(data, page)[region, old]
    cache = layout(data, page).view(dtype)
    migrate(cache, block_moves(pairs, num_blocks=BLOCKS, device="cpu"))
    assert torch.equal(data, expected)


@settings(deadline=None, max_examples=40)
@given(
    layout=st.sampled_from(LAYOUTS),
    page=st.integers(1, 70),
    order=st.permutations(range(BLOCKS)),
    count=st.integers(0, BLOCKS // 2),
)
def test_the_kernel_agrees_with_its_specification(layout, page, order, count, triton_module: ModuleType):
    moves = block_moves(
        list(zip(order[:count], order[count : 2 * count], strict=True)), num_blocks=BLOCKS, device="cpu"
    )
    by_kernel = random_bytes(4 * 72 * BLOCKS * LAYERS)
    by_specification = by_kernel.clone()
    if count:
        triton_module.migrate_blocks(layout(by_kernel, page), moves)
    migrate_blocks(layout(by_specification, page), moves)
    assert torch.equal(by_kernel, by_specification)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_moving_there_and_back_restores_the_sources(layout, migrate: Migrate):
    data = random_bytes(4 * 128 * BLOCKS * LAYERS)
    before = layout(data, 48).clone()
    there = block_moves([(9, 2), (8, 1)], num_blocks=BLOCKS, device="cpu")
    back = block_moves([(2, 9), (1, 8)], num_blocks=BLOCKS, device="cpu")
    migrate(layout(data, 48), there)
    layout(data, 48)[:, [8, 9]] = 0
    migrate(layout(data, 48), back)
    after = layout(data, 48)
    kept = [block for block in range(BLOCKS) if block not in (1, 2)]
    assert torch.equal(after[:, kept], before[:, kept])


def test_no_moves_change_nothing():
    data = random_bytes(BLOCKS * 64)
    before = data.clone()
    migrate_blocks(data.view(1, BLOCKS, 64), block_moves([], num_blocks=BLOCKS, device="cpu"))
    assert torch.equal(data, before)


def test_offsets_beyond_31_bits_are_reached(migrate: Migrate):
    # Untouched pages of this cache take no memory.
    stride = 2**30
    cache = torch.empty(3 * stride, dtype=torch.uint8).view(1, 3, stride)[:, :, :64]
    cache.copy_(random_bytes(3 * 64).view(1, 3, 64))
    source = cache[0, 2].clone()
    migrate(cache, block_moves([(2, 0)], num_blocks=3, device="cpu"))
    assert torch.equal(cache[0, 0], source)


@pytest.mark.parametrize(("page", "word"), [(1, 1), (2, 2), (6, 2), (12, 4), (24, 8), (64, 8)], ids=str)
def test_words_are_as_wide_as_the_layout_allows(page: int, word: int):
    data = random_bytes(BLOCKS * LAYERS * page)
    assert cache_view.widest_word(layer_outer(data, page), 8) == word
    assert cache_view.widest_word(layer_outer(data, page), 1) == 1


@pytest.mark.parametrize(
    ("cache", "message"),
    [
        (torch.zeros(BLOCKS, 4), r"\[regions, blocks, elements\] view .* found shape \(11, 4\)"),
        (torch.zeros(1, BLOCKS, 8)[:, :, ::2], r"adjacent elements is required, .* strides \(88, 8, 2\)"),
        (torch.zeros(1, BLOCKS - 1, 4), "a cache of 11 blocks or more is required, .* found 10"),
        (torch.zeros(1, BLOCKS, 4, device="meta"), "on the cache's device meta are required, found cpu"),
    ],
    ids=["two dimensions", "elements apart", "too few blocks", "another device"],
)
def test_a_view_that_does_not_fit_is_refused(cache: torch.Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        migrate_blocks(cache, block_moves([(10, 0)], num_blocks=BLOCKS, device="cpu"))
