"""A KV cache as [regions, blocks, elements], and the same memory as words of another width."""

import torch

from nightjar_kernels.moves import BlockMoves

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def check_cache(cache: torch.Tensor, moves: BlockMoves) -> None:
    if cache.dim() != 3 or (cache.shape[2] > 1 and cache.stride(2) != 1):
        raise ValueError(
            "a [regions, blocks, elements] view with adjacent elements is required,"
            f" found shape {tuple(cache.shape)} with strides {cache.stride()}"
        )
    if cache.shape[1] < moves.num_blocks:
        raise ValueError(
            f"a cache of {moves.num_blocks} blocks or more is required, as the moves were checked for that"
            f" many, found {cache.shape[1]}"
        )
    if cache.device != moves.old.device:
        raise ValueError(f"moves on the cache's device {cache.device} are required, found {moves.old.device}")


def as_words(cache: torch.Tensor, word_bytes: int) -> torch.Tensor:
    """The same memory as integers of 1, 2, 4 or 8 bytes."""
    return cache.view(WORDS[word_bytes])


def widest_word(cache: torch.Tensor, limit: int) -> int:
    """Bytes of the widest word, at most `limit`, of which every block of every region is a whole number."""
    size: int = cache.element_size()
    regions, _, elements = cache.shape
    region_stride = cache.stride(0) * size if regions > 1 else 0
    edges: int = cache.data_ptr() | region_stride | cache.stride(1) * size | elements * size
    return min(limit, edges & -edges)
