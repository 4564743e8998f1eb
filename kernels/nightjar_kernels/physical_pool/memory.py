"""What a pool asks of a platform."""

from typing import Protocol

import torch


class Memory(Protocol):
    """Physical granules and reserved addresses of one device.

    Sizes and addresses are in bytes, multiples of `granularity`. Every method raises MemoryCallError when the
    platform refuses.
    """

    @property
    def granularity(self) -> int:
        """The size of a granule must be a multiple of it."""

    def create(self, size: int, /) -> int:
        """Take a granule of physical memory; returns its handle."""

    def release(self, handle: int, /) -> None:
        """Return a granule that is mapped nowhere to the system."""

    def reserve(self, size: int, /) -> int:
        """Reserve addresses with nothing behind them; returns the first."""

    def free(self, address: int, size: int, /) -> None:
        """Give reserved addresses back; nothing may be mapped there."""

    def map(self, address: int, size: int, handle: int, /) -> None:
        """Put one granule behind reserved addresses."""

    def allow_access(self, address: int, size: int, /) -> None:
        """Let the device read and write mapped addresses."""

    def unmap(self, address: int, size: int, /) -> None:
        """Take away what is behind a run of addresses that is mapped without a gap."""

    def tensor(self, address: int, size: int, /) -> torch.Tensor:
        """Uint8 [size] over reserved addresses; usable where they are mapped."""
