import random

import pytest
import torch

from nightjar_kernels.kv_migrate import migrate_blocks, naive
from nightjar_kernels.moves import block_moves

DTYPES = [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2]


def random_pairs(blocks: int, count: int, seed: int = 0) -> list[tuple[int, int]]:
    ids = random.Random(seed).sample(range(blocks), 2 * count)
    return list(zip(ids[:count], ids[count:], strict=True))


def random_bytes(count: int) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(0)
    return torch.randint(0, 256, (count,), dtype=torch.uint8, device="cuda", generator=generator)


def view(data: torch.Tensor, layout: str, blocks: int, layers: int, page: int) -> torch.Tensor:
    """Data: uint8 [blocks * (layers + 1) * page + 1]; the spare page and byte belong to somebody else."""
    if layout == "block outer":
        return data[: blocks * layers * page].view(1, blocks, layers * page)
    if layout == "block outer by layer":
        return data[: blocks * layers * page].view(blocks, layers, page).transpose(0, 1)
    if layout == "layer outer":
        return data[: blocks * layers * page].view(layers, blocks, page)
    if layout == "beside a draft":
        return data[:-1].view(blocks, layers + 1, page)[:, 1:].transpose(0, 1)
    assert layout == "off by a byte"
    return data[1 : 1 + blocks * layers * page].view(layers, blocks, page)


LAYOUTS = ["block outer", "block outer by layer", "layer outer", "beside a draft", "off by a byte"]
# From a page smaller than a tile to pages of many tiles, whole and not; 32768 is one layer of the 7B shape.
PAGES = [2, 126, 4096, 32768, 65534]
# Layout and page decide how wide the words are that are copied, so all of them meet; the precision is only how the same
# bytes are seen, and takes turns.
CASES = [
    (layout, page, DTYPES[(row + column) % len(DTYPES)])
    for row, layout in enumerate(LAYOUTS)
    for column, page in enumerate(PAGES)
]


@pytest.mark.parametrize(("layout", "page", "dtype"), CASES, ids=str)
def test_the_kernel_agrees_with_its_specification(layout: str, page: int, dtype: torch.dtype):
    blocks, layers = 97, 5
    by_kernel = random_bytes(blocks * (layers + 1) * page + 1)
    by_specification = by_kernel.clone()
    moves = block_moves(random_pairs(blocks, 41), num_blocks=blocks, device="cuda")
    kernel_view = view(by_kernel, layout, blocks, layers, page)
    migrate_blocks(kernel_view if layout == "off by a byte" else kernel_view.view(dtype), moves)
    naive.migrate_blocks(view(by_specification, layout, blocks, layers, page), moves)
    assert torch.equal(by_kernel, by_specification)


def test_a_single_move_moves():
    cache = random_bytes(3 * 512).view(1, 3, 512)
    source = cache[0, 2].clone()
    migrate_blocks(cache, block_moves([(2, 0)], num_blocks=3, device="cuda"))
    assert torch.equal(cache[0, 0], source)


def test_no_moves_launch_nothing():
    cache = random_bytes(3 * 512).view(1, 3, 512)
    before = cache.clone()
    migrate_blocks(cache, block_moves([], num_blocks=3, device="cuda"))
    assert torch.equal(cache, before)


@pytest.mark.parametrize("layout", ["block outer", "layer outer"])
def test_caches_beyond_32_bits_of_bytes_and_words_are_reached(layout: str):
    blocks, layers, page = 20_000, 28, 32768  # 18.4 GB: 2^34 bytes and more than 2^32 words
    data = torch.zeros(blocks * layers * page, dtype=torch.uint8, device="cuda")
    cache = data.view(1, blocks, layers * page) if layout == "block outer" else data.view(layers, blocks, page)
    pairs = [(blocks - 1, 0), (1, blocks - 2), (blocks // 2, 5)]
    for stamp, (old, _) in enumerate(pairs, 1):
        cache[:, old] = stamp
    migrate_blocks(cache, block_moves(pairs, num_blocks=blocks, device="cuda"))
    for stamp, (old, new) in enumerate(pairs, 1):
        assert bool((cache[:, new] == stamp).all())
        assert bool((cache[:, old] == stamp).all())
    # Counting all at once would need eight times the memory.
    written = sum(int(torch.count_nonzero(part)) for part in data.split(1 << 28))
    assert written == 2 * len(pairs) * layers * page


def test_a_captured_migration_follows_its_moves():
    cache = random_bytes(16 * 4096).view(1, 16, 4096)
    moves = block_moves([(8, 0), (9, 1)], num_blocks=16, device="cuda")
    migrate_blocks(cache, moves)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        migrate_blocks(cache, moves)
    cache[0, 8:10] = 3
    moves.new.copy_(torch.tensor([4, 5]))
    before = cache.clone()
    graph.replay()
    before[0, 4:6] = 3
    assert torch.equal(cache, before)
