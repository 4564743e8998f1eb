"""A decoder layer's matrices for a few tokens, with what stands around them: norm, bias, SiLU, residual.

At a small batch a matrix is read once and hardly computed with, so what lies between two of them would cost more than
its arithmetic if it were a kernel of its own. Weights are vLLM's own: [outputs, inputs], the inputs adjacent.
Sums are float32; what is rounded to the weights' type on the way is what vLLM rounds there, or less.
"""

import torch

from nightjar_kernels.small_linear import naive
from nightjar_kernels.small_linear.naive import Norm
from nightjar_kernels.tiles import DEFAULT, Tiles

__all__ = ["MOST_TOKENS", "Norm", "linear_add", "norm_gate_up", "norm_linear"]

# Two tokens of 16 requests: a program keeps the sums of all tokens.
MOST_TOKENS = 32


def norm_linear(
    x: torch.Tensor, norm: Norm, weight: torch.Tensor, bias: torch.Tensor | None, tiles: Tiles = DEFAULT
) -> torch.Tensor:
    """RMSNorm, then a matrix: what the attention reads.

    x: [tokens, inputs], weight: [outputs, inputs], bias: [outputs]; returns [tokens, outputs]
    """
    _check(x, weight)
    if not x.is_cuda:
        return naive.norm_linear(x, norm, weight, bias)
    from nightjar_kernels.small_linear import triton

    return triton.norm_linear(x, norm, weight, bias, tiles)


def norm_gate_up(x: torch.Tensor, norm: Norm, weight: torch.Tensor, tiles: Tiles = DEFAULT) -> torch.Tensor:
    """RMSNorm, then SiLU of the first half of a matrix' outputs times the second half.

    x: [tokens, inputs], weight: [2 * outputs, inputs], all of the gate first; returns [tokens, outputs]
    """
    _check(x, weight)
    if not x.is_cuda:
        return naive.norm_gate_up(x, norm, weight)
    from nightjar_kernels.small_linear import triton

    return triton.norm_gate_up(x, norm, weight, tiles)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor, tiles: Tiles = DEFAULT) -> torch.Tensor:
    """A matrix, added to the residual stream.

    x: [tokens, inputs], weight: [outputs, inputs], residual: [tokens, outputs]; returns [tokens, outputs]
    """
    _check(x, weight, residual)
    if not x.is_cuda:
        return naive.linear_add(x, weight, residual)
    from nightjar_kernels.small_linear import triton

    return triton.linear_add(x, weight, residual, tiles)


def _check(x: torch.Tensor, *others: torch.Tensor) -> None:
    """ValueError for what a kernel would misread."""
    if len(x) > MOST_TOKENS:
        raise ValueError(f"at most {MOST_TOKENS} tokens are required, found {len(x)}; vLLM's own pass takes more")
    if not all(one.is_contiguous() and one.dtype == x.dtype for one in (x, *others)):
        found = ", ".join(f"strides {one.stride()} of {one.dtype}" for one in (x, *others))
        raise ValueError(f"contiguous tokens and weights of one type are required, found {found}")
