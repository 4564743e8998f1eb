"""Which of vLLM's layers an elastic cache can hold, and one that holds them."""

from typing import Any

from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, UniformTypeKVCacheSpecs

from nightjar_engine_patch.cpu.elastic_cache import ElasticCache, Pages
from nightjar_engine_patch.errors import RefusalError
from nightjar_kernels.physical_pool import MemoryCallError
from nightjar_kernels.physical_pool.cpu import CpuMemory

_SETTING = "additional_config.nightjar.elastic"


def make_cache(config: Any, draft_layers: set[str]) -> ElasticCache:
    """A cache for `config` (vllm.v1.kv_cache_interface.KVCacheConfig); RefusalError when it cannot be elastic."""
    layer_specs(config)
    bytes_of = {layer: tensor.block_stride for tensor in config.kv_cache_tensors for layer in tensor.layers}
    pages = Pages(
        target={layer: page for layer, page in bytes_of.items() if layer not in draft_layers},
        draft={layer: page for layer, page in bytes_of.items() if layer in draft_layers},
    )
    try:
        return ElasticCache(CpuMemory(), pages, config.num_blocks)
    except MemoryCallError as error:
        raise RefusalError(f"{_SETTING}: {error}; set it to false, or lower --kv-cache-memory-bytes") from error


def layer_specs(config: Any) -> dict[str, KVCacheSpec]:
    """Each layer's spec; RefusalError unless all share one block table and hold plain attention."""
    groups = config.kv_cache_groups
    if len(groups) != 1:
        raise RefusalError(
            f"{_SETTING}: one KV cache group is required, found {len(groups)} (a hybrid model); set it to false"
        )
    spec = groups[0].kv_cache_spec
    specs = (
        dict(spec.kv_cache_specs)
        if isinstance(spec, UniformTypeKVCacheSpecs)
        else dict.fromkeys(groups[0].layer_names, spec)
    )
    others = sorted({type(one).__name__ for one in specs.values() if type(one) is not FullAttentionSpec})
    if others:
        raise RefusalError(f"{_SETTING}: full attention in every layer is required, found {others}; set it to false")
    return specs
