"""The draft's weights in memory that can be taken away, and a copy in the host's to come back from.

Weights never change, so leaving needs no copying: one made at the start is enough.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from nightjar_engine_patch.elastic.layers import SETTING
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.gpu.pinned_memory import PinnedMemory
from nightjar_kernels.host_fetch import HostFetch
from nightjar_kernels.physical_pool import MemoryCallError

# As torch's allocator does; compiled code may count on it.
_ALIGNMENT = 512


@dataclass(frozen=True)
class _Place:
    weight: torch.nn.Parameter
    size: torch.Size
    stride: tuple[int, ...]
    offset: int
    nbytes: int


class DraftWeights:
    """In this order: `leave`, `settle`, then `restore` as often as what was under them had been taken away; `close`."""

    def __init__(self, weights: Iterable[torch.nn.Parameter]) -> None:
        """RefusalError for a weight that is more than a dense run of memory."""
        self._places: list[_Place] = []
        end = 0
        for weight in weights:
            _require_dense(weight)
            self._places.append(_Place(weight, weight.size(), weight.stride(), end, weight.nbytes))
            end = _aligned(end + weight.nbytes)
        self.nbytes = end
        self._copy: PinnedMemory | None = None
        self._driver: Any | None = None
        self._fetch: HostFetch | None = None

    def leave(self, *, free_host_bytes: int, driver: Any | None) -> None:
        """Copy the weights to the host, and give their memory on the device back.

        free_host_bytes: what the host has for the copy; RefusalError when that is too little
        driver: see `PinnedMemory`
        """
        if self.nbytes > free_host_bytes:
            raise _host_is_too_small(self.nbytes, f"{free_host_bytes} are free")
        try:
            copy = PinnedMemory(self.nbytes, driver)
        except (OSError, MemoryCallError) as error:
            raise _host_is_too_small(self.nbytes, str(error)) from error
        for place in self._places:
            _view(copy.bytes, place).copy_(place.weight.data)
            place.weight.data = torch.empty(0, dtype=place.weight.dtype, device=place.weight.device)
        self._copy, self._driver = copy, driver
        # Also of other drafts that were: what is to be mapped next must be free.
        torch.cuda.empty_cache()

    def settle(self, room: torch.Tensor) -> None:
        """Live in `room` (uint8, `nbytes` or more), which is mapped, from now on."""
        if self._copy is None:
            raise RuntimeError("weights that have left are required")
        for place in self._places:
            place.weight.data = _view(room, place)
        self._fetch = HostFetch(self._copy.bytes, room[: self.nbytes], self._driver)
        self.restore()

    def restore(self) -> None:
        """Fill the room again, on the current stream, and without waiting for it from pinned memory."""
        if self._fetch is None:
            raise RuntimeError("weights that have left and settled are required")
        self._fetch.run()

    def close(self) -> None:
        """Unpin the copy, once nothing fills the room any more."""
        if self._fetch is not None:
            self._fetch.close()
            self._fetch = None
        if self._copy is not None:
            self._copy.close()
            self._copy = None


def _view(memory: torch.Tensor, place: _Place) -> torch.Tensor:
    typed = memory[place.offset : place.offset + place.nbytes].view(place.weight.dtype)
    return typed.as_strided(place.size, place.stride, typed.storage_offset())


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


def _require_dense(weight: torch.Tensor) -> None:
    reach = 1 + sum((size - 1) * stride for size, stride in zip(weight.size(), weight.stride(), strict=True))
    if reach != weight.numel():
        raise RefusalError(
            f"{SETTING}: a draft whose weights are dense is required, found one of shape {tuple(weight.size())} with "
            f"strides {weight.stride()}; set it to false, or take another draft"
        )


def _host_is_too_small(required: int, found: str) -> RefusalError:
    return RefusalError(
        f"{SETTING}: {required} bytes of host memory are required for a pinned copy of the draft's weights, found: "
        f"{found}; raise the memory limit of the engine, take a smaller draft, or set it to false"
    )
