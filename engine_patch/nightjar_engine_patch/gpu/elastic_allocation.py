"""vLLM's KV cache on GPUs, allocated by us.

What:     the name `allocate_kv_cache` in `vllm.v1.worker.gpu.attn_utils`, while a runner of ours allocates
Why:      vLLM takes one buffer of a fixed size for all layers, target and draft, and offers no hook there
How:      the name is bound to a function of the runner's that gives views of other memory, and back
Upstream: none asked for yet
Goes away when the allocation of the KV cache can be chosen.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from vllm.v1.worker.gpu import attn_utils as stock

# vLLM's KVCacheConfig, device, layout and kernel block sizes; a view for each layer.
Allocate = Callable[[Any, torch.device, Any, list[int]], dict[str, torch.Tensor]]


@contextmanager
def allocating_by(allocate: Allocate) -> Iterator[None]:
    """Inside, vLLM's runner gets its KV cache from `allocate`."""
    bound: Any = stock
    original = bound.allocate_kv_cache
    bound.allocate_kv_cache = allocate
    try:
        yield
    finally:
        bound.allocate_kv_cache = original
