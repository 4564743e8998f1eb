"""vLLM's KV cache, allocated in an elastic cache.

What:     the name `allocate_kv_cache` in `vllm.v1.worker.gpu_model_runner`, while a runner of ours allocates
Why:      vLLM takes one buffer of a fixed size for all layers, target and draft, and offers no hook there
How:      the name is bound to a function that views an ElasticCache in the same way, and back
Upstream: none asked for yet
Goes away when the allocation of the KV cache can be chosen.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import vllm.v1.worker.gpu_model_runner as stock
from vllm.v1.kv_cache_interface import KVCacheSpec, KVCacheTensor, create_kv_cache_views

from nightjar_engine_patch.elastic.cache import ElasticCache
from nightjar_engine_patch.elastic.layers import layer_specs


@contextmanager
def allocating_in(cache: ElasticCache) -> Iterator[None]:
    """Inside, vLLM's runner gets its KV cache from `cache`."""

    def allocate_kv_cache(
        config: Any, device: torch.device, layout: Any, kernel_block_sizes: list[int] | None = None
    ) -> dict[str, torch.Tensor]:
        del device
        specs = layer_specs(config)
        kernel_block_size = kernel_block_sizes[0] if kernel_block_sizes else None
        return {
            layer: _view(cache, layer, specs[layer], tensor, layout, kernel_block_size)
            for tensor in config.kv_cache_tensors
            for layer in tensor.layers
        }

    bound: Any = stock
    original = bound.allocate_kv_cache
    bound.allocate_kv_cache = allocate_kv_cache
    try:
        yield
    finally:
        bound.allocate_kv_cache = original


def _view(
    cache: ElasticCache,
    layer: str,
    spec: KVCacheSpec,
    tensor: KVCacheTensor,
    layout: Any,
    kernel_block_size: int | None,
) -> torch.Tensor:
    """The layer's blocks as vLLM views them, with as many as there can be."""
    blocks = cache.capacity(layer)
    alone = replace(tensor, layers=[layer], layer_stride=blocks * tensor.block_stride, offset=0)
    raw = cache.buffer(layer).view(torch.int8)
    (view,) = create_kv_cache_views(raw, spec, blocks, layout, alone, kernel_block_size)
    view_of_layer: torch.Tensor = view
    return view_of_layer
