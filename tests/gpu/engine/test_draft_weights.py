"""The draft's weights and the helper, on the device."""

import pytest
import torch

from nightjar_engine_patch.elastic.cache import ElasticCache, Pages
from nightjar_engine_patch.elastic.directive import ExpandDirective, SqueezeDirective
from nightjar_kernels.physical_pool.cuda import CudaMemory

PAGES = Pages(target={"target": 1 << 18}, draft={"draft": 1 << 16})
BLOCKS = 128


@pytest.fixture
def made():
    from nightjar_engine_patch.gpu.background import Background
    from nightjar_engine_patch.gpu.draft_weights import DraftWeights
    from nightjar_engine_patch.gpu.elastic_memory import ElasticMemory

    linear = torch.nn.Linear(2048, 2048, device="cuda", dtype=torch.bfloat16).requires_grad_(requires_grad=False)
    weights = DraftWeights(linear.parameters())
    weights.leave(free_host_bytes=1 << 34, pinned=True)
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
