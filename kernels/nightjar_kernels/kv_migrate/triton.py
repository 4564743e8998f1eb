"""The Triton kernel: every program copies one tile of one region of one block."""
# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import triton
import triton.language as tl

from nightjar_kernels.kv_migrate.cache_view import as_words, widest_word
from nightjar_kernels.moves import BlockMoves

# Measured best on an H200, within 1 % of each other: tiles of 2 to 8 KiB with 32 bytes a thread.
WORD_BYTES = 4
TILE_BYTES = 4096
NUM_WARPS = 4


def migrate_blocks(cache: torch.Tensor, moves: BlockMoves) -> None:
    words = _merge_adjacent_regions(as_words(cache, widest_word(cache, WORD_BYTES)))
    regions, _, run = words.shape
    tile = min(TILE_BYTES // words.element_size(), triton.next_power_of_2(run))
    _migrate_blocks_kernel[(triton.cdiv(run, tile) * len(moves), regions)](
        words,
        moves.old,
        moves.new,
        run,
        words.stride(0),
        words.stride(1),
        TILE=tile,
        num_warps=NUM_WARPS,
    )


def _merge_adjacent_regions(words: torch.Tensor) -> torch.Tensor:
    """See regions that follow each other inside a block (block-outer, viewed by layer) as one long region."""
    regions, blocks, run = words.shape
    if regions > 1 and words.stride(0) == run:
        return words.as_strided((1, blocks, regions * run), (0, words.stride(1), 1))
    return words


@triton.jit
def _migrate_blocks_kernel(
    cache_ptr,  # [regions, blocks, run] words
    old_ptr,  # [moves] int64
    new_ptr,  # [moves] int64
    run,
    region_stride,
    block_stride,
    TILE: tl.constexpr,
):
    tiles = (run + TILE - 1) // TILE
    move = tl.program_id(0) // tiles
    words = (tl.program_id(0) % tiles) * TILE + tl.arange(0, TILE)
    inside = words < run
    # A cache is far larger than 2^31 words: ids are 64 bits wide, and so must be whatever else meets a stride.
    region_ptr = cache_ptr + tl.program_id(1).to(tl.int64) * region_stride
    source_ptr = region_ptr + tl.load(old_ptr + move) * block_stride
    target_ptr = region_ptr + tl.load(new_ptr + move) * block_stride
    tl.store(target_ptr + words, tl.load(source_ptr + words, mask=inside), mask=inside)
