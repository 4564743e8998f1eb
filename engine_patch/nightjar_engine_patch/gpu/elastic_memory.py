"""What one GPU does when memory changes hands: the part in the step, and the part beside the steps.

A step that carries a directive does, on the engine's stream and behind everything earlier, what the ids in that step
count on: blocks move, tables name the new ids. Memory is unmapped, mapped and filled by a helper, once the device has
passed that point; the steps in between know neither the draft nor the blocks that go. When it is done, the next
step's output tells the scheduler.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch

from nightjar_engine_patch.elastic.cache import ElasticCache
from nightjar_engine_patch.elastic.directive import Directive, ExpandDirective, Move, Obeyed
from nightjar_engine_patch.gpu.draft_weights import DraftWeights
from nightjar_kernels.block_table_remap import remap_block_tables
from nightjar_kernels.moves import BlockMoves, block_moves
from nightjar_kernels.physical_pool import Granules

# Cleared at a time: less than a tenth of a millisecond of an H200's bandwidth.
CLEARED_BYTES = 256 << 20


class Helper(Protocol):
    """See `background.Background`."""

    def begin(self, work: Callable[[], Obeyed], /) -> None: ...

    def take(self) -> Obeyed | None: ...

    def close(self) -> None: ...


class ElasticMemory:
    """One runner's memory. Every method is for the thread that launches steps, in their order."""

    def __init__(
        self,
        cache: ElasticCache,
        weights: DraftWeights,
        tables: Sequence[torch.Tensor],
        helper: Helper,
        rest: Callable[[], None],
    ) -> None:
        """Compile what steps will use.

        tables: all block tables, int32 [rows, most blocks of a request], on the device of the cache
        rest: called by the helper between two pieces of memory that it clears
        """
        self._cache = cache
        self._weights = weights
        self._tables = [
            (table, torch.full((len(table),), table.shape[1], dtype=torch.int32, device=table.device))
            for table in tables
        ]
        self._device = tables[0].device
        self._helper = helper
        self._rest = rest
        # An odd and an even number of moves: their addresses are aligned in different ways.
        for moves in ([(1, 2)], [(1, 2), (3, 4)]):
            self._rearrange(moves)

    @property
    def pool(self) -> Granules:
        """Whose books say where all memory is."""
        return self._cache.pool

    def obey(self, directive: Directive) -> None:
        """Call it before anything of the directive's step is launched."""
        if isinstance(directive, ExpandDirective):
            self._helper.begin(self._expand)
        else:
            self._rearrange(directive.moves)
            self._helper.begin(self._squeeze)

    def take(self) -> Obeyed | None:
        """The directive's end, once."""
        return self._helper.take()

    def close(self) -> None:
        """Give all memory back; nothing may use it any more."""
        self._helper.close()
        self._weights.close()
        self.pool.close()

    def _rearrange(self, pairs: Sequence[Move]) -> None:
        moves = block_moves(pairs, num_blocks=self._cache.most, device=self._device)
        self._cache.migrate(moves)
        lookup = lookup_after(moves, self._cache.blocks)
        for table, whole_rows in self._tables:
            # Whole rows: the ids behind those in use are of blocks that are gone, and some kernels look further ahead.
            remap_block_tables(table, whole_rows, lookup)

    def _expand(self) -> Obeyed:
        obeyed = self._cache.expand()
        # What stood here may be no number in the target's precision, and attention multiplies it by zero.
        self._clear(self._cache.tails())
        return obeyed

    def _squeeze(self) -> Obeyed:
        obeyed = self._cache.squeeze()
        self._clear(self._cache.draft_blocks())
        self._weights.restore()
        return obeyed

    def _clear(self, buffers: Iterable[torch.Tensor]) -> None:
        """All at once would take the bandwidth of some step for itself, one or two gigabytes long."""
        for buffer in buffers:
            for piece in buffer.split(CLEARED_BYTES):
                piece.zero_()
                self._rest()


def lookup_after(moves: BlockMoves, blocks: int) -> torch.Tensor:
    """The id that each old id has now, int32 [most]; ids of blocks that are gone become vLLM's null block."""
    lookup = moves.lookup()
    return lookup.masked_fill_(lookup >= blocks, 0)
