import threading

import pytest
import torch

from nightjar_kernels.kv_migrate import migrate_blocks
from nightjar_kernels.moves import block_moves
from nightjar_kernels.physical_pool import Granules, MemoryCallError, NotEnoughGranulesError
from nightjar_kernels.physical_pool.cuda import CudaMemory

GRANULE = 2 << 20


@pytest.fixture
def pool():
    granules = Granules(CudaMemory(0), granule_bytes=GRANULE, count=8)
    yield granules
    torch.cuda.synchronize()
    granules.check_integrity()
    granules.close()


def free_bytes() -> int:
    torch.cuda.synchronize()
    return torch.cuda.mem_get_info(0)[0]


def test_a_range_grows_and_shrinks_under_a_tensor_that_stays(pool: Granules):
    kv = pool.reserve("target KV", 6)
    data = kv.tensor()  # before anything is mapped
    kv.map(0, 2)
    data[: 2 * GRANULE] = 3
    kv.map(2, 4)
    data[2 * GRANULE :] = 4
    assert data.device == torch.device("cuda:0")
    assert data.data_ptr() == kv.address == kv.tensor().data_ptr()
    assert int(data.sum(dtype=torch.int64)) == (2 * 3 + 4 * 4) * GRANULE
    torch.cuda.synchronize()
    kv.unmap(2, 4)
    assert bool((data[: 2 * GRANULE] == 3).all())


def test_a_part_of_a_run_mapped_in_one_go_can_be_unmapped(pool: Granules):
    kv = pool.reserve("target KV", 8)
    kv.map(0, 8)
    data = kv.tensor()
    data.view(8, GRANULE).copy_(torch.arange(8, device="cuda", dtype=torch.uint8)[:, None])
    torch.cuda.synchronize()
    kv.unmap(2, 3)
    kv.map(3, 1)
    data[3 * GRANULE : 4 * GRANULE] = 9
    kept = [0, 1, 5, 6, 7]
    assert [int(data[slot * GRANULE]) for slot in kept] == kept
    assert int(data[3 * GRANULE]) == 9


def test_tenants_take_over_each_others_granules(pool: Granules):
    kv, weights = pool.reserve("target KV", 8), pool.reserve("draft weights", 3)
    kv.map(0, 5)
    weights.map(0, 3)
    kv.tensor()[: 5 * GRANULE] = 1
    weights.tensor().fill_(2)
    with pytest.raises(NotEnoughGranulesError, match=r"requires 3 free granules .* found 0 of 8"):
        kv.map(5, 3)
    copy = weights.tensor().cpu().pin_memory()
    weights.unmap(0, 3)
    kv.map(5, 3)
    kv.tensor()[5 * GRANULE :] = 5
    torch.cuda.synchronize()
    assert bool((kv.tensor()[: 5 * GRANULE] == 1).all())
    kv.unmap(5, 3)
    weights.map(0, 3)
    weights.tensor().copy_(copy, non_blocking=True)
    assert bool((weights.tensor() == 2).all())


def test_captured_graphs_stay_valid_when_granules_are_exchanged(pool: Granules):
    block = GRANULE // 4
    kv = pool.reserve("target KV", 4)
    kv.map(0, 4)
    cache = kv.tensor().view(1, 16, block)
    moves = block_moves([(14, 1)], num_blocks=16, device="cuda")
    migrate_blocks(cache, moves)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        migrate_blocks(cache, moves)
    torch.cuda.synchronize()
    kv.unmap(2, 2)
    other = pool.reserve("draft weights", 2)
    other.map(0, 2)
    kv.map(2, 2)
    cache[0, 14] = 77
    graph.replay()
    assert bool((cache[0, 1] == 77).all())


def test_ten_thousand_cycles_leak_nothing(pool: Granules):
    kv, weights = pool.reserve("target KV", 8), pool.reserve("draft weights", 4)
    kv.map(0, 4)
    data = kv.tensor()
    for cycle in range(10_000):
        weights.map(0, 4)
        weights.unmap(0, 4)
        kv.map(4, 4)
        if cycle % 1000 == 0:
            data[4 * GRANULE :] = 1
            torch.cuda.synchronize()
        kv.unmap(4, 4)
        if cycle == 100:
            early = free_bytes()
    assert free_bytes() == early
    assert pool.free == 4


def test_closing_a_pool_returns_its_memory():
    before = free_bytes()
    for _ in range(3):
        pool = Granules(CudaMemory(0), granule_bytes=GRANULE, count=64)
        pool.reserve("target KV", 64).map(0, 64)
        assert before - free_bytes() >= 64 * GRANULE
        pool.close()
    assert before - free_bytes() < 64 * GRANULE


def test_a_thread_without_a_context_may_map(pool: Granules):
    kv = pool.reserve("target KV", 8)
    errors: list[Exception] = []

    def helper() -> None:
        try:
            kv.map(0, 8)
            kv.unmap(4, 4)
            kv.map(4, 2)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the test shows it
            errors.append(error)

    thread = threading.Thread(target=helper)
    thread.start()
    thread.join()
    assert not errors
    kv.tensor()[: 6 * GRANULE] = 1
    assert int(kv.tensor()[: 6 * GRANULE].sum(dtype=torch.int64)) == 6 * GRANULE


def test_a_pool_larger_than_the_device_is_refused_and_takes_nothing():
    before = free_bytes()
    granule = 1 << 30
    with pytest.raises(MemoryCallError, match=r"^cuMemCreate\(1073741824, 0\) failed with .*MEMORY; device 0 has"):
        Granules(CudaMemory(0), granule_bytes=granule, count=torch.cuda.mem_get_info(0)[1] // granule + 1)
    assert before - free_bytes() < granule


def test_granules_that_the_device_cannot_map_are_refused():
    with pytest.raises(ValueError, match="a multiple of 2097152 bytes are required, found 4096 bytes"):
        Granules(CudaMemory(0), granule_bytes=4096, count=1)
