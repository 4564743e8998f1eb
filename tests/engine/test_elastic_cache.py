"""Target and draft as tenants of one pool of ordinary memory."""

import mmap
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nightjar_engine_patch.elastic.cache import ElasticCache, Pages, granule_bytes, most_blocks
from nightjar_engine_patch.errors import RefusalError
from nightjar_kernels.moves import block_moves
from nightjar_kernels.physical_pool.cpu import CpuMemory

PAGES = Pages(target={"t0": 1 << 17, "t1": 1 << 17}, draft={"d0": 1 << 16})
BLOCKS = 512


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.fixture
def cache():
    cache = ElasticCache(CpuMemory(), PAGES, BLOCKS)
    yield cache
    cache.pool.check_integrity()
    cache.pool.close()


def block(cache, layer, index):
    page = PAGES.all[layer]
    return cache.buffer(layer)[index * page : (index + 1) * page]


def squeeze(cache, *moves):
    cache.migrate(block_moves(moves, num_blocks=cache.most, device="cpu"))
    return cache.squeeze()


sizes = st.integers(1, 9).map(lambda kilobytes: kilobytes << 10)


@given(st.lists(sizes, min_size=1, max_size=4), st.lists(sizes, min_size=1, max_size=3), st.integers(1, 400))
def test_the_target_gets_every_block_that_fits_and_not_one_more(target, draft, blocks):
    pages = Pages(target=dict(enumerate(target)), draft={f"d{i}": size for i, size in enumerate(draft)})
    size = granule_bytes(sum(pages.all.values()) * blocks, 4096)

    def granules(total, part):
        return sum(-(-page * total // size) for page in part.values())

    there_are = granules(blocks, pages.target) + granules(blocks, pages.draft)
    most = most_blocks(pages, blocks, size)
    assert granules(most, pages.target) <= there_are < granules(most + 1, pages.target)
    # Rounding costs at most a granule for each layer.
    ideal = blocks + sum(draft) * blocks // sum(target)
    assert (ideal - most) * sum(target) < len(target) * size + sum(target)


@given(st.integers(1, 1 << 42))
def test_granules_are_whole_pages_and_never_too_many_to_keep_books_of(total):
    size = granule_bytes(total, 4096)
    assert size % 4096 == 0
    assert -(-total // size) <= 4096


def test_the_draft_makes_room_for_blocks_of_the_target(cache):
    assert cache.most == BLOCKS + BLOCKS // 4
    assert [cache.capacity(layer) for layer in PAGES.all] == [cache.most, cache.most, BLOCKS]
    assert cache.expand().blocks == cache.most
    assert cache.pool.free == 0
    assert squeeze(cache).blocks == BLOCKS
    assert cache.pool.free == 0


def test_blocks_move_below_in_every_layer_and_the_rest_stays(cache):
    cache.expand()
    for layer in PAGES.target:
        block(cache, layer, BLOCKS + 7).fill_(7)
        block(cache, layer, BLOCKS - 1).fill_(8)
    squeeze(cache, (BLOCKS + 7, 3))
    for layer in PAGES.target:
        assert bool((block(cache, layer, 3) == 7).all())
        assert bool((block(cache, layer, BLOCKS - 1) == 8).all())


def test_the_drafts_pages_return_to_the_system_and_so_do_the_targets(cache):
    start = resident_bytes()
    cache.buffer("d0").fill_(1)
    held = PAGES.draft["d0"] * BLOCKS
    assert resident_bytes() - start > 0.9 * held
    cache.expand()
    assert resident_bytes() - start < 0.1 * held
    for index in range(BLOCKS, cache.most):
        for layer in PAGES.target:
            block(cache, layer, index).fill_(1)
    assert resident_bytes() - start > 0.9 * held
    squeeze(cache)
    assert resident_bytes() - start < 0.1 * held
    assert not bool(cache.buffer("d0").any()), "what comes back is empty"


def test_addresses_never_change(cache):
    before = {layer: cache.buffer(layer).data_ptr() for layer in PAGES.all}
    for _ in range(3):
        cache.expand()
        squeeze(cache)
    assert {layer: cache.buffer(layer).data_ptr() for layer in PAGES.all} == before


def test_many_cycles_lose_no_granule_and_take_no_memory(cache):
    for cycle in range(100):
        cache.expand()
        block(cache, "t0", cache.most - 1).fill_(1)
        squeeze(cache, (cache.most - 1, 5))
        block(cache, "d0", BLOCKS - 1).fill_(1)
        cache.pool.check_integrity()
        if cycle == 10:
            early = resident_bytes()
    assert resident_bytes() - early < 4 << 20
    assert bool((block(cache, "t0", 5) == torch.ones(1, dtype=torch.uint8)).all())


def test_a_draft_too_small_for_one_block_is_refused():
    pages = Pages(target={"t": 1 << 20}, draft={"d": 1 << 12})
    with pytest.raises(RefusalError, match=r"nightjar\.elastic: a draft whose memory makes room for one block or more"):
        ElasticCache(CpuMemory(), pages, 8)
