"""The KV cache of target and draft, and the draft's weights if they can go, as tenants of one physical pool.

Whatever grows has a range of addresses of its own, long enough for the most blocks there can be, and grows at its end.
Addresses never change.
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
_WEIGHTS = "draft weights"


@dataclass(frozen=True)
class Pages:
    """Bytes of one block in each layer; layers that lie side by side in a block count as one."""

    target: Mapping[str, int]
    draft: Mapping[str, int]

    @property
    def all(self) -> dict[str, int]:
        return {**self.target, **self.draft}


class ElasticCache:
    """Every layer's blocks; `blocks` of them to begin with, `most` when the draft is away."""

    def __init__(self, memory: Memory, pages: Pages, blocks: int, *, weights: int = 0, least_granule: int = 0) -> None:
        """RefusalError when what the draft has makes room for none of the target's blocks.

        weights: bytes of the draft's weights, 0 if they stay where they are
        least_granule: bytes that a granule must have; the platform may require more
        """
        total = sum(pages.all.values()) * blocks + weights
        size = granule_bytes(total, max(memory.granularity, least_granule))
        self.blocks = blocks
        self.most = most_blocks(pages, blocks, size, weights)
        if self.most == blocks:
            raise RefusalError(
                f"additional_config.nightjar.elastic: a draft whose memory makes room for one block or more is"
                f" required; {blocks} blocks of {sum(pages.draft.values())} bytes and {weights} bytes of weights are"
                f" less than one block of the target's {sum(pages.target.values())};"
                f" raise --kv-cache-memory-bytes, or set it to false"
            )
        self._pages = pages
        self._few = {layer: _granules(page * blocks, size) for layer, page in pages.all.items()}
        if weights:
            self._few[_WEIGHTS] = _granules(weights, size)
        self._many = {layer: _granules(page * self.most, size) for layer, page in pages.target.items()}
        self._leaving = [name for name in self._few if name not in pages.target]
        self.pool = Granules(memory, granule_bytes=size, count=sum(self._few.values()))
        self._ranges = {name: self.pool.reserve(name, self._many.get(name, few)) for name, few in self._few.items()}
        for name, few in self._few.items():
            self._ranges[name].map(0, few)

    def buffer(self, layer: str) -> torch.Tensor:
        """All bytes of a layer, those with nothing behind them included."""
        return self._ranges[layer].tensor()

    def room_for_weights(self) -> torch.Tensor:
        return self.buffer(_WEIGHTS)

    def capacity(self, layer: str) -> int:
        """Blocks that a view of the layer has."""
        return self.most if layer in self._pages.target else self.blocks

    def kept(self) -> list[torch.Tensor]:
        """The bytes of the target's layers that stay mapped."""
        return [self.buffer(layer)[: self._few[layer] * self.pool.granule_bytes] for layer in self._pages.target]

    def tails(self) -> list[torch.Tensor]:
        """The bytes of the target's layers that are there while the draft is away."""
        size = self.pool.granule_bytes
        return [self.buffer(layer)[few * size : many * size] for layer, few, many in self._growing()]

    def draft_blocks(self) -> list[torch.Tensor]:
        """The bytes of the draft's layers, there while the draft is."""
        return [self.buffer(layer) for layer in self._pages.draft]

    def expand(self) -> Obeyed:
        """What the draft has is lost, the target has more."""
        for name in self._leaving:
            self._ranges[name].unmap(0, self._few[name])
        granules = 0
        for layer, few, many in self._growing():
            self._ranges[layer].map(few, many - few)
            granules += many - few
        return Obeyed(self.most, granules * self.pool.granule_bytes)

    def migrate(self, moves: BlockMoves) -> None:
        """Copy blocks of the target, in every layer."""
        for layer, page in self._pages.target.items():
            migrate_blocks(self.buffer(layer)[: page * self.most].view(1, self.most, page), moves)

    def squeeze(self) -> Obeyed:
        """What the target holds above its old end is lost, and the draft has room again, with nothing in it."""
        granules = 0
        for layer, few, many in self._growing():
            self._ranges[layer].unmap(few, many - few)
            granules += many - few
        for name in self._leaving:
            self._ranges[name].map(0, self._few[name])
        return Obeyed(self.blocks, granules * self.pool.granule_bytes)

    def _growing(self) -> list[tuple[str, int, int]]:
        """Layers that need more granules for more blocks."""
        sizes = [(layer, self._few[layer], self._many[layer]) for layer in self._pages.target]
        return [(layer, few, many) for layer, few, many in sizes if many > few]


def granule_bytes(total: int, least: int) -> int:
    """The size of a granule for `total` bytes: doubled until there are few, as blocks are even sizes too."""
    size = least
    while size * _GRANULES < total:
        size *= 2
    return size


def most_blocks(pages: Pages, blocks: int, granule: int, weights: int = 0) -> int:
    """Blocks that the target can have without the draft's, and without its weights."""
    free = sum(_granules(page * blocks, granule) for page in pages.draft.values()) + _granules(weights, granule)

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
