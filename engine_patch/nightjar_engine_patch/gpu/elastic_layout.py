"""Where each layer's KV lies: all of the target's layers side by side in a block, and all of the draft's in another
buffer, with the same block ids. So each buffer has one end at which it grows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from vllm.v1.kv_cache_interface import KVCacheSpec, KVCacheTensor, create_kv_cache_views
from vllm.v1.kv_cache_layout import KVCacheLayout

from nightjar_engine_patch.elastic.cache import ElasticCache, Pages
from nightjar_engine_patch.elastic.layers import SETTING, layer_specs
from nightjar_engine_patch.errors import RefusalError

TARGET, DRAFT = "target KV", "draft KV"


@dataclass(frozen=True)
class Part:
    """The layers of one buffer, `block_bytes` bytes of it for a block of all of them."""

    block_bytes: int
    placements: tuple[tuple[KVCacheSpec, KVCacheTensor], ...]
    """Layers of one spec each, and where in a block they lie."""


@dataclass(frozen=True)
class ElasticLayout:
    """The layers of target and draft, by buffer."""

    blocks: int
    parts: Mapping[str, Part]

    @property
    def pages(self) -> Pages:
        target, draft = self.parts[TARGET], self.parts[DRAFT]
        return Pages(target={TARGET: target.block_bytes}, draft={DRAFT: draft.block_bytes})

    def views(self, cache: ElasticCache, layout: KVCacheLayout) -> dict[str, torch.Tensor]:
        """Each layer's blocks as vLLM views them, with as many as there can be."""
        found: dict[str, torch.Tensor] = {}
        for name, part in self.parts.items():
            raw, blocks = cache.buffer(name).view(torch.int8), cache.capacity(name)
            for spec, tensor in part.placements:
                # Its strides between layers and blocks count, and of the layout what lies inside of a page.
                views = create_kv_cache_views(raw, spec, blocks, layout, tensor)
                found.update(zip(tensor.layers, views, strict=True))
        return found


def make_layout(
    config: Any, draft_layers: set[str], layout: KVCacheLayout, kernel_block_sizes: Iterable[int]
) -> ElasticLayout:
    """How `config` (vllm.v1.kv_cache_interface.KVCacheConfig) is laid out; RefusalError when it cannot be elastic."""
    specs = layer_specs(config)
    _check(config, specs, layout, kernel_block_sizes)
    tensors = config.kv_cache_tensors
    parts = {
        TARGET: _part(specs, tensors, set(specs) - draft_layers),
        DRAFT: _part(specs, tensors, set(specs) & draft_layers),
    }
    return ElasticLayout(config.num_blocks, parts)


def _check(
    config: Any, specs: Mapping[str, KVCacheSpec], layout: KVCacheLayout, kernel_block_sizes: Iterable[int]
) -> None:
    if not layout.is_block_compact:
        raise RefusalError(
            f"{SETTING}: a KV cache layout in which a layer's block is one run is required, found {layout.name}; "
            f"set VLLM_KV_CACHE_LAYOUT to LBNHC, or elastic to false"
        )
    if config.needs_kv_cache_zeroing:
        raise RefusalError(
            f"{SETTING}: one KV cache precision for target and draft is required, found several; leave "
            f"speculative_config.kv_cache_dtype out, or set elastic to false"
        )
    found = {spec.block_size for spec in specs.values()} | set(kernel_block_sizes)
    if len(found) > 1:
        raise RefusalError(
            f"{SETTING}: blocks of as many tokens as the attention kernels take are required, found sizes "
            f"{sorted(found)}; set --block-size to {min(found)}, or elastic to false"
        )


def _part(specs: Mapping[str, KVCacheSpec], tensors: Iterable[KVCacheTensor], wanted: set[str]) -> Part:
    """Layers of one spec follow each other in a block, in vLLM's order."""
    mine = [(tensor, [layer for layer in tensor.layers if layer in wanted]) for tensor in tensors]
    mine = [(tensor, layers) for tensor, layers in mine if layers]
    block_bytes = sum(specs[layer].page_size_bytes for _, layers in mine for layer in layers)
    placements, offset = [], 0
    for tensor, layers in mine:
        spec = specs[layers[0]]
        page = spec.page_size_bytes
        placed = replace(tensor, layers=layers, layer_stride=page, block_stride=block_bytes, offset=offset)
        placements.append((spec, placed))
        offset += len(layers) * page
    return Part(block_bytes, tuple(placements))
