"""A draft's last norm and output matrix, of whose logits only the best of each part of the vocabulary is kept."""

import torch

from nightjar_kernels.draft_inputs import Best
from nightjar_kernels.greedy_head import naive
from nightjar_kernels.greedy_head.naive import PART_TOKENS
from nightjar_kernels.small_linear import MOST_TOKENS, Norm
from nightjar_kernels.tiles import DEFAULT, Tiles


def best_of_head(x: torch.Tensor, norm: Norm, head: torch.Tensor, tiles: Tiles = DEFAULT) -> Best:
    """RMSNorm, the output matrix, and the first half of an argmax; `draft_inputs.advance` does the second.

    Logits are rounded to the weights' type, as vLLM's are; of equal ones the first counts.

    x: [rows, inputs], the inputs adjacent, head: [vocabulary, inputs]
    """
    if len(x) > MOST_TOKENS or x.stride(-1) != 1 or not head.is_contiguous() or x.dtype != head.dtype:
        raise ValueError(
            f"at most {MOST_TOKENS} rows with adjacent inputs, and a contiguous matrix of their type, are required,"
            f" found {tuple(x.shape)} of {x.dtype} with strides {x.stride()}, and strides {head.stride()} of"
            f" {head.dtype}"
        )
    parts = -(-len(head) // PART_TOKENS)
    best = Best(
        torch.empty(len(x), parts, dtype=torch.float32, device=x.device),
        torch.empty(len(x), parts, dtype=torch.int32, device=x.device),
    )
    if x.is_cuda:
        from nightjar_kernels.greedy_head import triton

        triton.best_of_head(x, norm, head, best, tiles)
    else:
        naive.best_of_head(x, norm, head, best)
    return best
