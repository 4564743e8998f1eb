"""Which of vLLM's layers an elastic cache can hold."""

from typing import Any

from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, UniformTypeKVCacheSpecs

from nightjar_engine_patch.errors import RefusalError

SETTING = "additional_config.nightjar.elastic"


def layer_specs(config: Any) -> dict[str, KVCacheSpec]:
    """Each layer's spec in `config` (vllm.v1.kv_cache_interface.KVCacheConfig); RefusalError unless all share one block
    table and hold plain attention.
    """
    groups = config.kv_cache_groups
    if len(groups) != 1:
        raise RefusalError(
            f"{SETTING}: one KV cache group is required, found {len(groups)} (a hybrid model); set it to false"
        )
    spec = groups[0].kv_cache_spec
    specs = (
        dict(spec.kv_cache_specs)
        if isinstance(spec, UniformTypeKVCacheSpecs)
        else dict.fromkeys(groups[0].layer_names, spec)
    )
    others = sorted({type(one).__name__ for one in specs.values() if type(one) is not FullAttentionSpec})
    if others:
        raise RefusalError(f"{SETTING}: full attention in every layer is required, found {others}; set it to false")
    return specs
