"""Copies KV blocks inside a cache: the data half of a logical remap."""

import torch

from nightjar_kernels.kv_migrate import naive
from nightjar_kernels.kv_migrate.cache_view import check_cache
from nightjar_kernels.moves import BlockMoves


def migrate_blocks(cache: torch.Tensor, moves: BlockMoves) -> None:
    """Copy block `old[i]` of `cache` over block `new[i]`, for every move, in place.

    `cache` is a [regions, blocks, elements] view of the cache buffer, any dtype, elements adjacent, other
    strides free: block-outer caches (all layers of a block in one run) are one region, layer-outer caches one
    region per layer. On a CUDA device this is one launch on the current stream, without a synchronisation.

    ValueError when the view has another shape, too few blocks for the moves, or lies on another device.
    """
    check_cache(cache, moves)
    if not len(moves):
        return
    if not cache.is_cuda:
        naive.migrate_blocks(cache, moves)
        return
    # Only a machine with a GPU has a Triton that can launch.
    from nightjar_kernels.kv_migrate import triton

    triton.migrate_blocks(cache, moves)
