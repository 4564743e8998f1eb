"""Memory of the host that a GPU's copy engine reads by itself, of exactly the size that is asked for.

torch's allocator of pinned memory takes the next power of two.
"""

import mmap
import weakref
from collections.abc import Callable
from typing import Any

import torch

from nightjar_kernels.driver_calls import call


class PinnedMemory:
    """Pages that stay where they are until `close`, or until the object is gone."""

    def __init__(self, size: int, driver: Any | None) -> None:
        """Zeros; `size` in bytes.

        driver: the module cuda.bindings.driver, with a context of a device current; None where there is no device, and
            nothing is pinned

        OSError without as much memory, MemoryCallError when the driver refuses.
        """
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # What a child shares is exchanged for a copy when it is written here, and not the copy is what was pinned.
        pages.madvise(mmap.MADV_DONTFORK)
        self.bytes = torch.frombuffer(pages, dtype=torch.uint8)
        self._unpin: Callable[[], object] | None = None
        if driver is not None:
            address = self.bytes.data_ptr()
            call(driver, "cuMemHostRegister", address, size, 0)
            self._unpin = weakref.finalize(self, call, driver, "cuMemHostUnregister", address)

    def close(self) -> None:
        """Let the pages go where they like; no device may read them any more."""
        if self._unpin is not None:
            self._unpin()
