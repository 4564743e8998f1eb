"""Which blocks move where: checked once, then used by every kernel of the same remap."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class BlockMoves:
    """Block `old[i]` becomes block `new[i]`.

    `old` and `new` are int64 [moves] on one device. `block_moves` makes and checks them; the kernels rely on every
    id being used at most once, because then the order of the copies does not matter.
    """

    num_blocks: int
    old: torch.Tensor
    new: torch.Tensor

    def __len__(self) -> int:
        return int(self.old.numel())

    def lookup(self) -> torch.Tensor:
        """Int32 [num_blocks]: the id that each old id has now; blocks that did not move map to themselves."""
        table = torch.arange(self.num_blocks, dtype=torch.int32, device=self.old.device)
        table[self.old] = self.new.to(torch.int32)
        return table


def block_moves(pairs: Sequence[tuple[int, int]], *, num_blocks: int, device: torch.device | str) -> BlockMoves:
    """Check (old, new) pairs of block ids and put them on a device.

    ValueError when an id lies outside 0 … num_blocks - 1, or occurs twice, in whichever role.
    """
    ids = [block for pair in pairs for block in pair]
    # A step waits for this: who is to blame is looked for when somebody is.
    if ids and not (min(ids) >= 0 and max(ids) < num_blocks):
        _blame_range(pairs, num_blocks)
    if len(set(ids)) < len(ids):
        _blame_second_use(pairs)
    device = torch.device(device)
    # From pinned memory the upload is asynchronous, so a step that carries moves waits for nothing.
    pinned = device.type == "cuda" and len(pairs) > 0
    table = torch.tensor(ids, dtype=torch.int64).view(-1, 2).t().contiguous()
    old, new = (table.pin_memory() if pinned else table).to(device, non_blocking=True)
    return BlockMoves(num_blocks, old, new)


def _blame_range(pairs: Sequence[tuple[int, int]], num_blocks: int) -> None:
    for old, new in pairs:
        if not (0 <= old < num_blocks and 0 <= new < num_blocks):
            raise ValueError(f"block ids from 0 to {num_blocks - 1} are required, found the move {old} → {new}")


def _blame_second_use(pairs: Sequence[tuple[int, int]]) -> None:
    used: set[int] = set()
    for pair in pairs:
        for block in pair:
            if block in used:
                raise ValueError(
                    "disjoint moves are required (each block once, as a source or as a destination),"
                    f" found block {block} a second time in the move {pair[0]} → {pair[1]}"
                )
            used.add(block)
