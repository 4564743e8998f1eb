"""The CUDA graphs of one kind of draft pass: which sizes are captured, and which one serves a batch."""

from collections.abc import Iterable
from typing import Any

import torch
from vllm.config.compilation import CUDAGraphMode
from vllm.v1.worker.gpu.cudagraph_utils import BatchExecutionDescriptor
from vllm.v1.worker.gpu.spec_decode.target_dependent_ar.cudagraph_utils import SpeculatorCudaGraphManager


class DraftGraphs(SpeculatorCudaGraphManager):
    """vLLM's way of capturing, for sizes of our own
    (vllm/v1/worker/gpu/spec_decode/target_dependent_ar/cudagraph_utils.py).
    """

    def __init__(self, vllm_config: Any, device: torch.device, sizes: Iterable[BatchExecutionDescriptor]) -> None:
        super().__init__(vllm_config, device, CUDAGraphMode.FULL_DECODE_ONLY, 1)
        self._sizes = sorted(sizes, key=lambda size: size.num_tokens)
        # Largest first: the smaller ones then fit into memory that is there.
        self._capture_descs = {CUDAGraphMode.FULL: self._sizes[::-1]}

    def smallest(self, rows: int, tokens: int) -> BatchExecutionDescriptor | None:
        """The captured size that wastes least; None when none is large enough."""
        for size in self._sizes:
            # vLLM warms up, with steps like any other, before it captures.
            if (size.num_reqs or 0) >= rows and size.num_tokens >= tokens and size in self.graphs:
                return size
        return None


def batch_sizes(requests: Iterable[int], tokens_a_request: int) -> list[BatchExecutionDescriptor]:
    """Whole batches, in which every request has as many tokens."""
    return [
        BatchExecutionDescriptor(CUDAGraphMode.FULL, number * tokens_a_request, number, tokens_a_request)
        for number in requests
    ]


def piece_sizes(most_tokens: int, most_requests: int) -> list[BatchExecutionDescriptor]:
    """Pieces of any requests, in powers of two up to `most_tokens`."""
    sizes, tokens = [], min(64, most_tokens)
    while tokens:
        sizes.append(BatchExecutionDescriptor(CUDAGraphMode.FULL, tokens, min(tokens, most_requests)))
        tokens = min(2 * tokens, most_tokens) if tokens < most_tokens else 0
    return sizes
