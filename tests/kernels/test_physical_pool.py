import mmap
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nightjar_kernels.physical_pool import Granules, MemoryCallError, NotEnoughGranulesError, PoolError
from nightjar_kernels.physical_pool.cpu import CpuMemory

GRANULE = 1 << 20


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


@pytest.fixture
def pool():
    granules = Granules(CpuMemory(), granule_bytes=GRANULE, count=8)
    yield granules
    granules.check_integrity()
    granules.close()


def test_unmapped_pages_return_to_the_system_and_kept_ones_keep_their_contents():
    pool = Granules(CpuMemory(), granule_bytes=GRANULE, count=64)
    kv = pool.reserve("target KV", 64)
    kv.map(0, 64)
    before = resident_bytes()
    data = kv.tensor()
    data.fill_(7)
    filled = resident_bytes()
    assert filled - before > 60 * GRANULE
    kv.unmap(8, 56)
    assert filled - resident_bytes() > 52 * GRANULE
    assert bool((data[: 8 * GRANULE] == 7).all())
    pool.close()


def test_many_cycles_take_no_memory():
    pool = Granules(CpuMemory(), granule_bytes=GRANULE, count=16)
    kv, draft = pool.reserve("target KV", 16), pool.reserve("draft weights", 8)
    kv.map(0, 8)
    cycles = 10_000
    for cycle in range(cycles):
        draft.map(0, 8)
        draft.tensor()[:: GRANULE // 2] = 1
        draft.unmap(0, 8)
        kv.map(8, 8)
        kv.tensor()[8 * GRANULE :: GRANULE // 2] = 1
        kv.unmap(8, 8)
        if cycle == cycles // 10:
            early = resident_bytes()
    assert resident_bytes() - early < 2 * GRANULE
    pool.check_integrity()
    assert pool.free == 8
    pool.close()


def test_a_tensor_stays_valid_while_granules_come_and_go(pool: Granules):
    kv = pool.reserve("target KV", 6)
    kv.map(0, 2)
    data = kv.tensor()
    data[:GRANULE] = 3
    kv.map(2, 4)
    data[2 * GRANULE :] = 4
    kv.unmap(1, 1)
    kv.map(1, 1)
    assert data.data_ptr() == kv.address == kv.tensor().data_ptr()
    assert data.numel() == kv.size == 6 * GRANULE
    assert data[0] == 3
    assert data[-1] == 4


def test_tenants_share_one_pool(pool: Granules):
    kv, draft = pool.reserve("target KV", 8), pool.reserve("draft weights", 3)
    kv.map(0, 5)
    draft.map(0, 3)
    with pytest.raises(NotEnoughGranulesError, match=r"requires 1 free granules .* found 0 of 8"):
        kv.map(5, 1)
    draft.unmap(0, 3)
    kv.map(5, 3)
    assert (kv.mapped, draft.mapped, pool.free) == (8, 0, 0)


def test_sizes_are_rounded_up_to_granules(pool: Granules):
    assert [pool.granules_for(size) for size in (0, 1, GRANULE, GRANULE + 1)] == [0, 1, 1, 2]


def test_a_refused_map_changes_nothing(pool: Granules):
    kv = pool.reserve("target KV", 20)
    kv.map(0, 3)
    with pytest.raises(NotEnoughGranulesError, match="mapping 'target KV' at slot 3 requires 6 free granules"):
        kv.map(3, 6)
    with pytest.raises(ValueError, match=r"unmapped slots of 'target KV' are required, found mapped ones: \[2\]"):
        kv.map(2, 2)
    assert (kv.mapped, pool.free) == (3, 5)


@pytest.mark.parametrize(("at", "count"), [(-1, 1), (0, 0), (3, 2), (0, 5)])
def test_slots_outside_a_range_are_refused(pool: Granules, at: int, count: int):
    kv = pool.reserve("target KV", 4)
    for change in (kv.map, kv.unmap):
        with pytest.raises(ValueError, match=f"slots from 0 to 3 are required .* found {count} from {at} on"):
            change(at, count)


def test_an_unmapped_slot_cannot_be_unmapped(pool: Granules):
    kv = pool.reserve("target KV", 4)
    kv.map(0, 2)
    with pytest.raises(ValueError, match=r"mapped slots of 'target KV' are required, found unmapped ones: \[2\]"):
        kv.unmap(1, 2)
    assert kv.mapped == 2


def test_closing_a_range_gives_its_granules_back(pool: Granules):
    kv = pool.reserve("target KV", 4)
    kv.map(1, 2)
    kv.close()
    assert pool.free == 8


@pytest.mark.parametrize(
    ("granule_bytes", "count", "message"),
    [
        (GRANULE + 1, 1, f"a multiple of {mmap.PAGESIZE} bytes are required, found {GRANULE + 1}"),
        (0, 1, "found 0 bytes"),
        (GRANULE, 0, "at least one granule is required, found 0"),
    ],
)
def test_a_pool_that_cannot_exist_is_refused(granule_bytes: int, count: int, message: str):
    with pytest.raises(ValueError, match=message):
        Granules(CpuMemory(), granule_bytes=granule_bytes, count=count)


def test_a_range_without_granules_is_refused(pool: Granules):
    with pytest.raises(ValueError, match="at least one granule is required for 'draft KV', found 0"):
        pool.reserve("draft KV", 0)


def test_addresses_that_the_system_does_not_have_are_refused(pool: Granules):
    with pytest.raises(MemoryCallError, match=r"reserving .* bytes of addresses failed"):
        pool.reserve("target KV", 2**30)
    pool.check_integrity()


class FailingMemory(CpuMemory):
    """Refuses the call that `fails` names once `after` calls of it have worked."""

    def __init__(self, fails: str, after: int) -> None:
        super().__init__()
        self.fails, self.after = fails, after
        self.live: set[int] = set()
        self.mapped: dict[int, int] = {}

    def _count(self, name: str) -> None:
        if name == self.fails:
            if not self.after:
                raise MemoryCallError(f"{name} refused")
            self.after -= 1

    def create(self, size: int) -> int:
        self._count("create")
        handle = super().create(size)
        self.live.add(handle)
        return handle

    def release(self, handle: int) -> None:
        self.live.remove(handle)

    def map(self, address: int, size: int, handle: int) -> None:
        self._count("map")
        self.mapped[address] = handle

    def allow_access(self, address: int, size: int) -> None:
        self._count("allow_access")

    def unmap(self, address: int, size: int) -> None:
        self._count("unmap")
        self.mapped = {at: h for at, h in self.mapped.items() if not address <= at < address + size}


@pytest.mark.parametrize(("fails", "after"), [("map", 0), ("map", 2), ("allow_access", 0)])
def test_a_map_that_the_platform_refuses_leaves_nothing_mapped(fails: str, after: int):
    memory = FailingMemory(fails, after)
    pool = Granules(memory, granule_bytes=GRANULE, count=4)
    kv = pool.reserve("target KV", 4)
    with pytest.raises(MemoryCallError, match=f"{fails} refused"):
        kv.map(0, 4)
    assert (kv.mapped, pool.free, memory.mapped) == (0, 4, {})
    pool.check_integrity()


def test_an_unmap_that_the_platform_refuses_leaves_everything_mapped():
    pool = Granules(FailingMemory("unmap", 0), granule_bytes=GRANULE, count=4)
    kv = pool.reserve("target KV", 4)
    kv.map(0, 4)
    with pytest.raises(MemoryCallError, match="unmap refused"):
        kv.unmap(0, 4)
    assert (kv.mapped, pool.free) == (4, 0)


def test_a_pool_that_does_not_fit_takes_nothing():
    memory = FailingMemory("create", 3)
    with pytest.raises(MemoryCallError, match="create refused"):
        Granules(memory, granule_bytes=GRANULE, count=4)
    assert not memory.live


def test_closing_a_pool_releases_every_granule():
    memory = FailingMemory("nothing", 0)
    pool = Granules(memory, granule_bytes=GRANULE, count=4)
    pool.reserve("target KV", 4).map(0, 3)
    pool.close()
    assert not memory.live
    assert not memory.mapped


@pytest.mark.parametrize("damage", ["lost", "twice", "outside"])
def test_a_damaged_pool_is_noticed(damage: str):
    pool = Granules(CpuMemory(), granule_bytes=GRANULE, count=4)
    kv = pool.reserve("target KV", 4)
    kv.map(0, 2)
    if damage == "lost":
        kv.slots.pop(0)
    elif damage == "twice":
        kv.slots[0] = kv.slots[1]
    else:
        kv.slots[4] = kv.slots.pop(0)
    with pytest.raises(PoolError, match="required"):
        pool.check_integrity()


def test_threads_may_share_a_pool(pool: Granules):
    ranges = [pool.reserve(name, 4) for name in ("target KV", "draft KV")]
    start = threading.Barrier(2)
    errors: list[Exception] = []

    def cycle(index: int) -> None:
        start.wait()
        try:
            for _ in range(500):
                ranges[index].map(0, 4)
                pool.check_integrity()
                ranges[index].unmap(0, 4)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the test shows it
            errors.append(error)

    threads = [threading.Thread(target=cycle, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert pool.free == 8


class PoolMachine(RuleBasedStateMachine):
    """Three tenants map and unmap at random; each slot's content is its own as long as it stays mapped."""

    CAPACITY = 6
    PAGE = mmap.PAGESIZE

    def __init__(self) -> None:
        super().__init__()
        self.pool = Granules(CpuMemory(), granule_bytes=self.PAGE, count=10)
        self.ranges = [self.pool.reserve(name, self.CAPACITY) for name in ("target KV", "draft KV", "weights")]
        self.contents: list[dict[int, int]] = [{}, {}, {}]
        self.stamp = 0

    @rule(tenant=st.integers(0, 2), at=st.integers(0, CAPACITY - 1), count=st.integers(1, CAPACITY))
    def map(self, tenant: int, at: int, count: int) -> None:
        wanted = range(at, at + count)
        possible = wanted.stop <= self.CAPACITY and not any(slot in self.contents[tenant] for slot in wanted)
        if not possible or count > self.pool.free:
            with pytest.raises(ValueError if not possible else NotEnoughGranulesError):
                self.ranges[tenant].map(at, count)
            return
        self.ranges[tenant].map(at, count)
        for slot in wanted:
            self.stamp = (self.stamp + 1) % 251
            self.pages(tenant)[slot] = self.stamp
            self.contents[tenant][slot] = self.stamp

    @precondition(lambda self: any(self.contents))
    @rule(tenant=st.integers(0, 2), at=st.integers(0, CAPACITY - 1), count=st.integers(1, CAPACITY))
    def unmap(self, tenant: int, at: int, count: int) -> None:
        wanted = range(at, at + count)
        if not all(slot in self.contents[tenant] for slot in wanted):
            with pytest.raises(ValueError, match="are required"):
                self.ranges[tenant].unmap(at, count)
            return
        self.ranges[tenant].unmap(at, count)
        for slot in wanted:
            del self.contents[tenant][slot]

    def pages(self, tenant: int) -> torch.Tensor:
        return self.ranges[tenant].tensor().view(self.CAPACITY, self.PAGE)

    @invariant()
    def every_granule_is_accounted_for(self) -> None:
        self.pool.check_integrity()
        assert self.pool.free == self.pool.total - sum(map(len, self.contents))

    @invariant()
    def mapped_slots_keep_their_contents(self) -> None:
        for tenant, contents in enumerate(self.contents):
            for slot, stamp in contents.items():
                assert bool((self.pages(tenant)[slot] == stamp).all())

    def teardown(self) -> None:
        self.pool.close()


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
