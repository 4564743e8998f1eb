"""Granules and the ranges they are mapped into: the bookkeeping, the same on every platform."""

import threading
from collections import Counter

import torch

from nightjar_kernels.physical_pool.errors import MemoryCallError, NotEnoughGranulesError, PoolError
from nightjar_kernels.physical_pool.memory import Memory


class Granules:
    """A fixed number of physical granules of one size, each free or mapped at one place in one range.

    All memory is taken at once, so what does not fit is refused at start-up and never later. Safe to use from
    several threads: operations on one pool and its ranges run one after another.
    """

    def __init__(self, memory: Memory, *, granule_bytes: int, count: int) -> None:
        """ValueError for a size the platform cannot map; MemoryCallError when it has less memory than that."""
        if granule_bytes < 1 or granule_bytes % memory.granularity:
            raise ValueError(
                f"granules of a multiple of {memory.granularity} bytes are required, found {granule_bytes} bytes"
            )
        if count < 1:
            raise ValueError(f"a pool of at least one granule is required, found {count}")
        self.granule_bytes = granule_bytes
        self.total = count
        self.memory = memory
        self.lock = threading.RLock()
        self._free: list[int] = []
        self._ranges: list[Range] = []
        try:
            while self.free < count:
                self._free.append(memory.create(granule_bytes))
        except MemoryCallError:
            self.close()
            raise

    @property
    def free(self) -> int:
        return len(self._free)

    def granules_for(self, size: int) -> int:
        """Granules that hold `size` bytes."""
        return -(-size // self.granule_bytes)

    def reserve(self, name: str, granules: int) -> "Range":
        """Reserve addresses for `granules` granules; `name` is for messages."""
        if granules < 1:
            raise ValueError(f"a range of at least one granule is required for {name!r}, found {granules}")
        with self.lock:
            reserved = Range(self, name, granules)
            self._ranges.append(reserved)
            return reserved

    def take(self, count: int, purpose: str) -> list[int]:
        """Handles of `count` free granules, or NotEnoughGranulesError. For ranges."""
        with self.lock:
            if count > self.free:
                raise NotEnoughGranulesError(
                    f"{purpose} requires {count} free granules of {self.granule_bytes} bytes,"
                    f" found {self.free} of {self.total}; another range must give some back first"
                )
            taken = self._free[-count:]
            del self._free[-count:]
            return taken

    def give(self, handles: list[int]) -> None:
        """Make granules free again. For ranges, after unmapping."""
        with self.lock:
            self._free.extend(handles)

    def forget(self, closed: "Range") -> None:
        """Strike a range off the books. For ranges, when they close."""
        with self.lock:
            self._ranges.remove(closed)

    def close(self) -> None:
        """Return everything to the system; no device work may still use it. Tensors over it become invalid."""
        with self.lock:
            for reserved in list(self._ranges):
                reserved.close()
            while self._free:
                self.memory.release(self._free.pop())
            self.total = 0

    def check_integrity(self) -> None:
        """PoolError unless every granule is in exactly one place: free, or behind one slot of one range."""
        with self.lock:
            places = Counter(self._free)
            for reserved in self._ranges:
                places.update(reserved.slots.values())
                outside = [slot for slot in reserved.slots if not 0 <= slot < reserved.capacity]
                if outside:
                    raise PoolError(
                        f"slots below {reserved.capacity} are required in {reserved.name!r}, found {outside}"
                    )
            if len(places) != self.total or places.total() != self.total:
                raise PoolError(
                    f"{self.total} granules in one place each are required,"
                    f" found {len(places)} granules in {places.total()} places"
                )


class Range:
    """Reserved addresses of one tenant; slot i is the i-th granule's worth of them.

    Addresses never change, so tensors and captured CUDA graphs stay valid over every map and unmap. The caller
    sees to it that the device uses mapped slots only, and has finished with a slot before it is unmapped.
    """

    def __init__(self, pool: Granules, name: str, capacity: int) -> None:
        self.name = name
        self.capacity = capacity
        self.slots: dict[int, int] = {}
        self._pool = pool
        self._memory = pool.memory
        self.address = self._memory.reserve(self.size)

    @property
    def size(self) -> int:
        """Bytes of address space, mapped or not."""
        return self.capacity * self._pool.granule_bytes

    @property
    def mapped(self) -> int:
        """Granules behind this range."""
        return len(self.slots)

    def map(self, at: int, count: int) -> None:
        """Take `count` granules from the pool and put them behind slots `at` …, ready to be read and written.

        Contents are undefined. NotEnoughGranulesError when the pool has fewer; ValueError when a slot is outside
        the range or already mapped.
        """
        with self._pool.lock:
            self._require(at, count, mapped=False)
            handles = self._pool.take(count, f"mapping {self.name!r} at slot {at}")
            try:
                self._place(handles, at)
            except MemoryCallError:
                self._pool.give(handles)
                raise
            self.slots.update(enumerate(handles, at))

    def unmap(self, at: int, count: int) -> None:
        """Give the granules behind `count` slots from `at` on back to the pool; their contents are lost.

        ValueError when one of the slots is not mapped.
        """
        with self._pool.lock:
            self._require(at, count, mapped=True)
            self._memory.unmap(self._address_of(at), count * self._pool.granule_bytes)
            self._pool.give([self.slots.pop(slot) for slot in range(at, at + count)])

    def tensor(self) -> torch.Tensor:
        """Uint8 [size] over the whole range."""
        return self._memory.tensor(self.address, self.size)

    def close(self) -> None:
        """Give granules and addresses back. Tensors over the range become invalid."""
        with self._pool.lock:
            for slot in list(self.slots):
                self.unmap(slot, 1)
            self._memory.free(self.address, self.size)
            self._pool.forget(self)

    def _address_of(self, slot: int) -> int:
        return self.address + slot * self._pool.granule_bytes

    def _place(self, handles: list[int], at: int) -> None:
        size = self._pool.granule_bytes
        placed = 0
        try:
            for slot, handle in enumerate(handles, at):
                self._memory.map(self._address_of(slot), size, handle)
                placed += 1
            self._memory.allow_access(self._address_of(at), len(handles) * size)
        except MemoryCallError:
            if placed:
                self._memory.unmap(self._address_of(at), placed * size)
            raise

    def _require(self, at: int, count: int, *, mapped: bool) -> None:
        if count < 1 or at < 0 or at + count > self.capacity:
            raise ValueError(
                f"slots from 0 to {self.capacity - 1} are required in {self.name!r}, found {count} from {at} on"
            )
        wrong = [slot for slot in range(at, at + count) if (slot in self.slots) != mapped]
        if wrong:
            required, found = ("mapped", "unmapped") if mapped else ("unmapped", "mapped")
            raise ValueError(f"{required} slots of {self.name!r} are required, found {found} ones: {wrong}")
