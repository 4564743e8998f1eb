"""An elastic cache for vLLM's CPU build, which lays each layer's blocks in a row."""

from typing import Any

from nightjar_engine_patch.elastic.cache import ElasticCache, Pages
from nightjar_engine_patch.elastic.layers import SETTING, layer_specs
from nightjar_engine_patch.errors import RefusalError
from nightjar_kernels.physical_pool import MemoryCallError
from nightjar_kernels.physical_pool.cpu import CpuMemory


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
        raise RefusalError(f"{SETTING}: {error}; set it to false, or lower --kv-cache-memory-bytes") from error
