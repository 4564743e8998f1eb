"""Ordinary memory with the same interface: pages appear on first touch and go back to the system on unmap."""

import mmap

import torch

from nightjar_kernels.physical_pool.errors import MemoryCallError


class CpuMemory:
    """Granules are only counted here: the system decides which pages stand behind an address.

    One difference from a GPU: touching an unmapped address is no fault, it takes memory beside the pool.
    """

    def __init__(self) -> None:
        self._created = 0
        self._reserved: dict[int, mmap.mmap] = {}

    @property
    def granularity(self) -> int:
        return mmap.PAGESIZE

    def create(self, _size: int) -> int:
        self._created += 1
        return self._created

    def release(self, handle: int) -> None: ...

    def reserve(self, size: int) -> int:
        try:
            area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryCallError(f"reserving {size} bytes of addresses failed: {error.strerror}") from error
        address = int(torch.frombuffer(area, dtype=torch.uint8).data_ptr())
        self._reserved[address] = area
        return address

    def free(self, address: int, size: int) -> None:
        # The mapping itself lives as long as a tensor over it does; its pages go now.
        self.unmap(address, size)
        del self._reserved[address]

    def map(self, address: int, size: int, handle: int) -> None: ...

    def allow_access(self, address: int, size: int) -> None: ...

    def unmap(self, address: int, size: int) -> None:
        area, offset = self._find(address)
        area.madvise(mmap.MADV_DONTNEED, offset, size)

    def tensor(self, address: int, size: int) -> torch.Tensor:
        area, offset = self._find(address)
        return torch.frombuffer(area, dtype=torch.uint8, count=size, offset=offset)

    def _find(self, address: int) -> tuple[mmap.mmap, int]:
        for start, area in self._reserved.items():
            if start <= address < start + len(area):
                return area, address - start
        raise MemoryCallError(f"an address inside a reserved range is required, found {address:#x}")
