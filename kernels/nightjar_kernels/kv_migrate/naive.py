"""The specification: what a migration means, in plain PyTorch."""

import torch

from nightjar_kernels.kv_migrate.cache_view import as_words
from nightjar_kernels.moves import BlockMoves


def migrate_blocks(cache: torch.Tensor, moves: BlockMoves) -> None:
    """`cache[:, new] = cache[:, old]`, as bytes: some dtypes (fp8) cannot be indexed by every backend."""
    data = as_words(cache, 1)
    data[:, moves.new] = data[:, moves.old]
