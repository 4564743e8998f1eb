"""A function of vLLM's CPU build that loses its result, replaced in worker processes of ours.

What:     the name `expand_batch_to_tokens` in `vllm.v1.sample.rejection_sampler`
Why:      its kernel for CPUs turns temperatures into integers and writes them to a copy that nobody reads
          (`_expand_kernel_impl`, vllm/utils/cpu_triton_utils.py). As soon as one request of a batch is sampled, the
          logits of all drafts are divided by whatever was in memory, those of greedy requests too
How:      the name is bound to the function below before the first step
Upstream: not reported yet
Goes away when `_expand_kernel_impl` returns what it computes; its fingerprint is recorded.
"""

from typing import Any

import torch
import vllm.v1.sample.rejection_sampler as stock


def expand_batch_to_tokens(
    x: torch.Tensor, cu_num_tokens: torch.Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> torch.Tensor:
    """Each request's value for each of its tokens, [num_tokens]; `replace_from` becomes `replace_to`.

    x: [requests]; cu_num_tokens: [requests], where each request's tokens end
    """
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    return x.masked_fill(x == replace_from, replace_to).repeat_interleave(counts, output_size=num_tokens)


def repair() -> None:
    bound: Any = stock
    bound.expand_batch_to_tokens = expand_batch_to_tokens
