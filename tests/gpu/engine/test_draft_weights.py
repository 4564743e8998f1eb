"""The draft's weights, their copy on the host and the helper, on the device."""

import importlib
import mmap

import pytest
import torch

from nightjar_engine_patch.elastic.cache import ElasticCache, Pages
from nightjar_engine_patch.elastic.directive import ExpandDirective, SqueezeDirective
from nightjar_kernels.host_fetch import HostFetch
from nightjar_kernels.physical_pool import MemoryCallError
from nightjar_kernels.physical_pool.cuda import CudaMemory

PAGES = Pages(target={"target": 1 << 18}, draft={"draft": 1 << 16})
BLOCKS = 128


@pytest.fixture(scope="module")
def driver():
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    return importlib.import_module("cuda.bindings.driver")


@pytest.fixture
def made(driver):
    from nightjar_engine_patch.gpu.background import Background
    from nightjar_engine_patch.gpu.draft_weights import DraftWeights
    from nightjar_engine_patch.gpu.elastic_memory import ElasticMemory

    linear = torch.nn.Linear(2048, 2048, device="cuda", dtype=torch.bfloat16).requires_grad_(requires_grad=False)
    weights = DraftWeights(linear.parameters())
    weights.leave(free_host_bytes=weights.nbytes, driver=driver)
    cache = ElasticCache(CudaMemory(0), PAGES, BLOCKS, weights=weights.nbytes, least_granule=2 << 20)
    for buffer in (*cache.kept(), *cache.draft_blocks()):
        buffer.zero_()
    weights.settle(cache.room_for_weights())
    tables = [torch.zeros(8, 16, dtype=torch.int32, device="cuda") for _ in range(2)]
    memory = ElasticMemory(cache, weights, tables, Background(torch.device("cuda:0")), lambda: None)
    yield linear, cache, memory, tables
    torch.cuda.synchronize()
    cache.pool.check_integrity()
    memory.close()


def obeyed(memory):
    for _ in range(1_000_000):
        found = memory.take()
        if found is not None:
            return found
    raise TimeoutError("the helper did not finish")


def test_a_graph_over_weights_and_blocks_stays_valid_over_cycles(made):
    linear, cache, memory, tables = made
    given = torch.randn(4, 2048, device="cuda", dtype=torch.bfloat16)
    expected = linear(given)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = linear(given)
    page = PAGES.all["target"]
    for cycle in range(20):
        memory.obey(ExpandDirective())
        assert obeyed(memory).blocks == cache.most
        high = cache.most - 1
        cache.buffer("target")[high * page : (high + 1) * page].fill_(cycle)
        tables[0][0, 0] = high
        memory.obey(SqueezeDirective(((high, 5),)))
        assert obeyed(memory).blocks == BLOCKS
        assert bool((cache.buffer("target")[5 * page : 6 * page] == cycle).all())
        assert int(tables[0][0, 0]) == 5
        found.zero_()
        graph.replay()
        assert torch.equal(found, expected)


def test_nothing_goes_before_the_device_is_past_the_directive(made):
    linear, cache, memory, _ = made
    given = torch.randn(4, 2048, device="cuda", dtype=torch.bfloat16)
    expected = linear(given)
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)
    late = linear(given)
    memory.obey(ExpandDirective())
    assert memory.take() is None
    assert obeyed(memory).blocks == cache.most
    assert torch.equal(late, expected)
    memory.obey(SqueezeDirective(()))
    obeyed(memory)


@pytest.mark.parametrize("size", [4096, 4096 + 512, (1 << 26) + 7 * 512])
def test_pinned_memory_of_any_size_is_read_by_the_device_until_it_is_closed(driver, size):
    from nightjar_engine_patch.gpu.pinned_memory import PinnedMemory

    memory = PinnedMemory(size, driver)
    assert memory.bytes.shape == (size,)
    assert memory.bytes.is_pinned()
    memory.bytes.copy_(torch.randint(0, 256, (size,), dtype=torch.uint8))
    out = torch.zeros(size, dtype=torch.uint8, device="cuda")
    HostFetch(memory.bytes, out, driver).run()
    assert torch.equal(out.cpu(), memory.bytes)
    memory.close()
    assert not memory.bytes.is_pinned()


def test_memory_that_is_pinned_twice_is_refused_by_the_driver(driver, monkeypatch):
    from nightjar_engine_patch.gpu import pinned_memory

    pages = mmap.mmap(-1, 4096)
    monkeypatch.setattr(pinned_memory.mmap, "mmap", lambda *_, **__: pages)
    first = pinned_memory.PinnedMemory(4096, driver)
    with pytest.raises(MemoryCallError, match=r"cuMemHostRegister\(.*\) failed with .*HOST_MEMORY_ALREADY_REG"):
        pinned_memory.PinnedMemory(4096, driver)
    first.close()
