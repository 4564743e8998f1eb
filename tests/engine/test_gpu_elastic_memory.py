"""How a GPU's memory changes hands, on the pool of ordinary memory, with a helper that waits for its cue."""

import ctypes
import mmap
import re
from enum import Enum
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nightjar_engine_patch.elastic.cache import ElasticCache, Pages
from nightjar_engine_patch.elastic.directive import ExpandDirective, Obeyed, SqueezeDirective
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.gpu import elastic_memory
from nightjar_engine_patch.gpu.draft_weights import DraftWeights
from nightjar_engine_patch.gpu.elastic_memory import ElasticMemory, lookup_after
from nightjar_engine_patch.gpu.host_memory import free_host_bytes
from nightjar_engine_patch.gpu.pinned_memory import PinnedMemory
from nightjar_kernels.moves import block_moves
from nightjar_kernels.physical_pool import MemoryCallError
from nightjar_kernels.physical_pool.cpu import CpuMemory

PAGES = Pages(target={"target": 1 << 16}, draft={"draft": 1 << 14})
BLOCKS = 64
GRANULE = 1 << 17


class HelperDouble:
    """Does its work when told to, as a helper thread does it some time later."""

    def __init__(self):
        self.work = self.found = None
        self.closed = False

    def begin(self, work):
        assert self.work is None
        self.work = work

    def finish(self):
        self.found, self.work = self.work(), None

    def take(self):
        found, self.found = self.found, None
        return found

    def close(self):
        self.closed = True


class Code(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713


class DriverDouble:
    """As much of cuda.bindings.driver as pins memory. What is pinned it writes to: its pages are still there."""

    CUresult = Code

    def __init__(self, code=Code.CUDA_SUCCESS):
        self.code = code
        self.pinned = {}

    def cuMemHostRegister(self, address, size, flags):  # noqa: N802 - the driver's name
        if self.code == Code.CUDA_SUCCESS:
            ctypes.memset(address, flags, size)
            self.pinned[address] = size
        return (self.code,)

    def cuMemHostUnregister(self, address):  # noqa: N802 - the driver's name
        if self.code == Code.CUDA_SUCCESS:
            ctypes.memset(address, 0, self.pinned.pop(address))
        return (self.code,)


class Engine:
    """Elastic memory, and what of vLLM's it works on."""

    def __init__(self, weights, pages=PAGES, driver=None):
        self.weights = DraftWeights(weights)
        self.weights.leave(free_host_bytes=1 << 30, driver=driver)
        self.cache = ElasticCache(CpuMemory(), pages, BLOCKS, weights=self.weights.nbytes, least_granule=GRANULE)
        self.weights.settle(self.cache.room_for_weights())
        self.tables = [torch.zeros(4, 6, dtype=torch.int32) for _ in range(2)]
        self.helper = HelperDouble()
        self.at_rest = lambda: None
        self.memory = ElasticMemory(self.cache, self.weights, self.tables, self.helper, self.rest)

    def rest(self):
        self.at_rest()

    def block(self, name, index):
        page = PAGES.all[name]
        return self.cache.buffer(name)[index * page : (index + 1) * page]

    def obey(self, directive):
        self.memory.obey(directive)
        self.helper.finish()
        return self.memory.take()


def parameters():
    made = [torch.arange(1, 1 + size, dtype=dtype) for size, dtype in ((1000, torch.float32), (77, torch.bfloat16))]
    made.append(torch.arange(60, dtype=torch.float32).view(6, 10).t())
    return [torch.nn.Parameter(one, requires_grad=False) for one in made]


@pytest.fixture
def drafts_own():
    return parameters()


@pytest.fixture
def engine(drafts_own):
    engine = Engine(drafts_own)
    yield engine
    engine.cache.pool.check_integrity()
    engine.memory.close()
    assert engine.helper.closed


def test_the_target_gets_what_the_drafts_kv_and_its_weights_take(engine):
    room = engine.cache.blocks * PAGES.all["draft"] + engine.weights.nbytes
    assert engine.cache.most >= BLOCKS + room // PAGES.all["target"]
    assert engine.obey(ExpandDirective()) == Obeyed(engine.cache.most, (engine.cache.pool.total - 32) * GRANULE)
    assert engine.cache.pool.free == 0


@given(st.integers(1, 40), st.integers(1, 10), st.integers(1, 300), st.integers(1, 1 << 21))
def test_no_more_than_two_granules_of_the_drafts_memory_are_lost(target, draft, blocks, weights):
    pages = Pages(target={"t": target << 10}, draft={"d": draft << 10})
    ideal = (blocks * pages.all["d"] + weights) // pages.all["t"]
    if not ideal:
        return
    cache = ElasticCache(CpuMemory(), pages, blocks, weights=weights, least_granule=1 << 14)
    size = cache.pool.granule_bytes
    assert (cache.most - blocks - ideal) * pages.all["t"] >= -2 * size
    assert cache.most * pages.all["t"] <= cache.pool.total * size
    cache.expand()
    cache.squeeze()
    cache.pool.check_integrity()
    cache.pool.close()


@pytest.mark.parametrize("pieces", [1, 2])
@pytest.mark.parametrize("directive", [ExpandDirective(), SqueezeDirective(())])
def test_memory_is_cleared_piece_by_piece_with_a_rest_between(drafts_own, directive, pieces, monkeypatch):
    """A step beside must not wait for all of it."""
    pages = Pages(
        target={f"target {layer}": 1 << 16 for layer in range(3)}, draft={f"draft {layer}": 1 << 16 for layer in "ab"}
    )
    engine = Engine(drafts_own, pages)
    if isinstance(directive, SqueezeDirective):
        engine.obey(ExpandDirective())
    buffers = engine.cache.tails() if isinstance(directive, ExpandDirective) else engine.cache.draft_blocks()
    size = len(buffers[0]) // pieces
    monkeypatch.setattr(elastic_memory, "CLEARED_BYTES", size)
    parts = [part for buffer in buffers for part in buffer.split(size)]
    seen = []
    engine.at_rest = lambda: seen.append([int(part.any()) for part in parts])
    place = engine.cache.expand if isinstance(directive, ExpandDirective) else engine.cache.squeeze

    def placed():
        obeyed = place()
        for part in parts:
            part.fill_(1)
        return obeyed

    setattr(engine.cache, place.__name__, placed)
    engine.obey(directive)
    assert seen == [[0] * (done + 1) + [1] * (len(parts) - done - 1) for done in range(len(parts))]
    engine.memory.close()


def test_nothing_is_taken_away_before_the_device_has_passed_the_directive(engine, drafts_own):
    engine.block("draft", 3).fill_(9)
    before = [weight.clone() for weight in drafts_own]
    engine.memory.obey(ExpandDirective())
    assert engine.memory.take() is None
    # Steps that were launched earlier still read the draft.
    assert bool((engine.block("draft", 3) == 9).all())
    assert all(torch.equal(one, other) for one, other in zip(drafts_own, before, strict=True))
    engine.helper.finish()
    assert engine.memory.take().blocks == engine.cache.most
    assert engine.memory.take() is None


def test_what_the_target_gets_holds_numbers_only(engine):
    engine.obey(ExpandDirective())
    for index in range(BLOCKS, engine.cache.most):
        assert not bool(engine.block("target", index)[-64:].any())
    engine.cache.buffer("target")[-GRANULE:].fill_(255)
    engine.obey(SqueezeDirective(()))
    engine.obey(ExpandDirective())
    assert not bool(engine.cache.buffer("target")[-GRANULE:].any())


def test_blocks_and_tables_move_in_the_step_itself_and_memory_goes_after_it(engine):
    engine.obey(ExpandDirective())
    high = BLOCKS + 2
    engine.block("target", high).fill_(7)
    for table in engine.tables:
        table[0] = torch.tensor([5, high, 6, 0, 0, 0])
        table[2] = torch.tensor([BLOCKS + 1, 1, BLOCKS, 0, 0, 0])
    engine.memory.obey(SqueezeDirective(((high, 3), (BLOCKS + 1, 4))))
    assert bool((engine.block("target", 3) == 7).all())
    for table in engine.tables:
        assert table[0].tolist() == [5, 3, 6, 0, 0, 0]
        # Block N_orig is in no request any more: whoever reads on behind a row's end must find memory there.
        assert table[2].tolist() == [4, 1, 0, 0, 0, 0]
    # Until the helper is done the memory is still the target's.
    assert bool((engine.block("target", high) == 7).all())
    assert engine.memory.take() is None
    engine.helper.finish()
    assert engine.memory.take().blocks == BLOCKS


def test_the_draft_comes_back_with_its_weights_and_empty_blocks(engine, drafts_own):
    expected = [weight.clone() for weight in drafts_own]
    places = [weight.data_ptr() for weight in drafts_own]
    engine.block("draft", 5).fill_(9)
    for cycle in range(5):
        engine.obey(ExpandDirective())
        engine.block("target", engine.cache.most - 1).fill_(cycle)
        engine.obey(SqueezeDirective(((engine.cache.most - 1, 8),)))
        assert bool((engine.block("target", 8) == cycle).all())
        assert not bool(engine.cache.buffer("draft").any())
        assert all(torch.equal(one, other) for one, other in zip(drafts_own, expected, strict=True))
        engine.cache.pool.check_integrity()
    assert [weight.data_ptr() for weight in drafts_own] == places
    assert drafts_own[2].stride() == (1, 10), "a weight that a kernel wants transposed stays so"


def test_what_the_helper_dies_of_reaches_the_step(engine):
    def die():
        raise RuntimeError("the platform refused")

    engine.helper.take = die
    with pytest.raises(RuntimeError, match="the platform refused"):
        engine.memory.take()
    del engine.helper.take


def test_a_lookup_names_what_moved_what_stayed_and_what_is_gone():
    moves = block_moves([(6, 1)], num_blocks=8, device="cpu")
    assert lookup_after(moves, 5).tolist() == [0, 1, 2, 3, 4, 0, 1, 0]


def test_a_host_without_room_for_the_weights_is_refused(drafts_own):
    weights = DraftWeights(drafts_own)
    # What they take, each from a multiple of 512 on.
    assert weights.nbytes == 4096 + 512 + 512
    with pytest.raises(RefusalError, match=r"elastic: 5120 bytes of host memory are required .* 5119 are free"):
        weights.leave(free_host_bytes=5119, driver=None)
    assert torch.equal(drafts_own[0], torch.arange(1, 1001).float()), "and nothing has left"
    weights.leave(free_host_bytes=5120, driver=None)


def test_the_copy_on_the_host_is_pinned_in_its_size_until_the_memory_is_closed(drafts_own):
    driver = DriverDouble()
    engine = Engine(drafts_own, driver=driver)
    ((address, size),) = driver.pinned.items()
    assert size == engine.weights.nbytes
    assert address % mmap.PAGESIZE == 0
    expected = [weight.clone() for weight in drafts_own]
    engine.obey(ExpandDirective())
    engine.obey(SqueezeDirective(()))
    assert all(torch.equal(one, other) for one, other in zip(drafts_own, expected, strict=True))
    assert driver.pinned == {address: size}
    engine.memory.close()
    assert not driver.pinned


def flags_of(address):
    """Of the mapping that `address` lies in, as the kernel abbreviates them."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise ValueError(f"{address:x} is not mapped")


def test_a_child_process_has_no_part_in_pinned_memory():
    memory = PinnedMemory(4096, DriverDouble())
    assert "dc" in flags_of(memory.bytes.data_ptr()), "not copied by a fork"


def test_a_copy_that_nobody_closes_is_unpinned_with_its_owner(drafts_own):
    driver = DriverDouble()
    weights = DraftWeights(drafts_own)
    weights.leave(free_host_bytes=1 << 30, driver=driver)
    assert driver.pinned
    del weights
    assert not driver.pinned


def test_a_driver_that_pins_nothing_is_a_reason_not_to_start(drafts_own):
    driver = DriverDouble(code=Code.CUDA_ERROR_OUT_OF_MEMORY)
    with pytest.raises(
        RefusalError,
        match=r"elastic: 5120 bytes .* required .* found: cuMemHostRegister\(\d+, 5120, 0\) failed with "
        r"CUDA_ERROR_OUT_OF_MEMORY; raise the memory limit of the engine, .* or set it to false$",
    ):
        DraftWeights(drafts_own).leave(free_host_bytes=1 << 30, driver=driver)
    assert torch.equal(drafts_own[0], torch.arange(1, 1001).float()), "and nothing has left"


def test_a_driver_that_unpins_nothing_says_so():
    driver = DriverDouble()
    memory = PinnedMemory(4096, driver)
    driver.code = Code.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
    with pytest.raises(MemoryCallError, match=r"cuMemHostUnregister\(\d+\) failed with CUDA_ERROR_HOST_MEMORY_NOT_REG"):
        memory.close()


def test_a_weight_with_gaps_is_refused():
    gaps = torch.nn.Parameter(torch.zeros(10, 10)[:, :3], requires_grad=False)
    with pytest.raises(RefusalError, match=r"dense is required, found one of shape \(10, 3\) with strides \(10, 1\)"):
        DraftWeights([gaps])


def host(root, limit, version):
    (root / "proc").mkdir()
    (root / "proc/meminfo").write_text("MemTotal:       4000 kB\nMemAvailable:   2000 kB\n")
    group = root / "sys/fs/cgroup" / ("memory" if version == 1 else "")
    group.mkdir(parents=True)
    if limit is None:
        return root
    names, inherited = {
        1: (("memory.limit_in_bytes", "memory.usage_in_bytes"), "total_"),
        2: (("memory.max", "memory.current"), ""),
    }[version]
    for name, number in zip(names, (limit, 900000), strict=True):
        (group / name).write_text(f"{number}\n")
    files = f"{inherited}active_file 100000\n{inherited}inactive_file 200000\n"
    (group / "memory.stat").write_text(f"anon 500000\n{files}")
    return root


@pytest.mark.parametrize(
    ("version", "limit", "free"),
    [
        (2, None, 2000 << 10),
        (2, "max", 2000 << 10),
        (2, 1_000_000, 400_000),
        (2, 1 << 40, 2000 << 10),
        (1, 1_000_000, 400_000),
        # Version 1 has no word for it.
        (1, 2**63 - 4096, 2000 << 10),
    ],
)
def test_a_host_has_what_is_available_or_what_the_container_may_still_take(tmp_path, version, limit, free):
    assert free_host_bytes(host(tmp_path, limit, version)) == free
