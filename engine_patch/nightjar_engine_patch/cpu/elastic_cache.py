"""The KV cache of target and draft as two tenants of one pool of ordinary memory.

vLLM's CPU build lays each layer's blocks in a row (LBHNC), so every layer has a range of addresses of its own, long
enough for the most blocks there can be, and grows at its own end. Addresses never change.

The draft's weights are no tenant here: on CPUs a copy to come back from would lie in the same memory, and vLLM keeps
linear layers in the form of its kernels, which no one can move.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from nightjar_engine_patch.elastic.directive import Obeyed
from nightjar_engine_patch.errors import RefusalError
from nightjar_kernels.kv_migrate import migrate_blocks
from nightjar_kernels.moves import BlockMoves
from nightjar_kernels.physical_pool import Granules, Memory

# Enough that what rounding wastes is little, and few enough to keep books of.
_GRANULES = 4096


@dataclass(frozen=True)
class Pages:
    """Bytes of one block in each layer."""

    target: Mapping[str, int]
    draft: Mapping[str, int]

    @property
    def all(self) -> dict[str, int]:
        return {**self.target, **self.draft}


class ElasticCache:
    """Every layer's blocks; `blocks` of them to begin with, `most` when the draft is away."""

    def __init__(self, memory: Memory, pages: Pages, blocks: int) -> None:
        """RefusalError when the draft's blocks make room for none of the target's."""
        size = granule_bytes(sum(pages.all.values()) * blocks, memory.granularity)
        self.blocks = blocks
        self.most = most_blocks(pages, blocks, size)
        if self.most == blocks:
            raise RefusalError(
                f"additional_config.nightjar.elastic: a draft whose KV makes room for one block or more is required;"
                f" {blocks} blocks of {sum(pages.draft.values())} bytes are less than one of the target's"
                f" {sum(pages.target.values())}; raise --kv-cache-memory-bytes, or set it to false"
            )
        self._pages = pages
        self._few = {layer: _granules(page * blocks, size) for layer, page in pages.all.items()}
        self._many = {layer: _granules(page * self.most, size) for layer, page in pages.target.items()}
        self.pool = Granules(memory, granule_bytes=size, count=sum(self._few.values()))
        self._ranges = {layer: self.pool.reserve(layer, self._many.get(layer, few)) for layer, few in self._few.items()}
        for layer, few in self._few.items():
            self._ranges[layer].map(0, few)

    def buffer(self, layer: str) -> torch.Tensor:
        """All bytes of a layer, those with nothing behind them included."""
        return self._ranges[layer].tensor()

    def capacity(self, layer: str) -> int:
        """Blocks that a view of the layer has."""
        return self.most if layer in self._pages.target else self.blocks

    def expand(self) -> Obeyed:
        """The draft's KV is lost, the target has more."""
        for layer in self._pages.draft:
            self._ranges[layer].unmap(0, self._few[layer])
        granules = 0
        for layer, few, many in self._tails():
            self._ranges[layer].map(few, many - few)
            granules += many - few
        return Obeyed(self.most, granules * self.pool.granule_bytes)

    def squeeze(self, moves: BlockMoves) -> Obeyed:
        """What the target holds above its old end moves below, and the draft has room again, with nothing in it."""
        for layer, page in self._pages.target.items():
            cache = self.buffer(layer)[: page * self.most].view(1, self.most, page)
            migrate_blocks(cache, moves)
        granules = 0
        for layer, few, many in self._tails():
            self._ranges[layer].unmap(few, many - few)
            granules += many - few
        for layer in self._pages.draft:
            self._ranges[layer].map(0, self._few[layer])
        return Obeyed(self.blocks, granules * self.pool.granule_bytes)

    def _tails(self) -> list[tuple[str, int, int]]:
        """Layers that need more granules for more blocks."""
        tails = [(layer, self._few[layer], self._many[layer]) for layer in self._pages.target]
        return [(layer, few, many) for layer, few, many in tails if many > few]


def granule_bytes(total: int, granularity: int) -> int:
    """The size of a granule for a cache of `total` bytes: doubled until there are few, as blocks are even sizes too."""
    size = granularity
    while size * _GRANULES < total:
        size *= 2
    return size


def most_blocks(pages: Pages, blocks: int, granule: int) -> int:
    """Blocks that the target can have without the draft's."""
    free = sum(_granules(page * blocks, granule) for page in pages.draft.values())

    def taken(total: int) -> int:
        return sum(
            _granules(page * total, granule) - _granules(page * blocks, granule) for page in pages.target.values()
        )

    # A last granule is rarely full, so each layer may have a little more than the draft gives.
    layers = len(pages.target)
    most = blocks + (free + layers) * granule // sum(pages.target.values())
    return bisect_right(range(most + 1), free, lo=blocks, key=taken) - 1


def _granules(size: int, granule: int) -> int:
    return -(-size // granule)
