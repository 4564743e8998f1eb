"""How an engine's memory becomes elastic, when its KV cache is allocated."""

import importlib
from functools import partial
from time import sleep
from typing import Any

import torch

from nightjar_engine_patch.elastic.cache import ElasticCache
from nightjar_engine_patch.elastic.layers import SETTING
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.gpu.background import Background
from nightjar_engine_patch.gpu.draft_weights import DraftWeights
from nightjar_engine_patch.gpu.elastic_layout import make_layout
from nightjar_engine_patch.gpu.elastic_memory import ElasticMemory
from nightjar_engine_patch.gpu.host_memory import free_host_bytes
from nightjar_kernels.physical_pool import Memory, MemoryCallError
from nightjar_kernels.physical_pool.cuda import CudaMemory

# Measured on an H200, to map and unmap 1 GiB: 27 ms in granules of 2 MiB, 3.2 ms of 16 MiB, 0.8 ms of 64 MiB
# (benchmarks/results/elastic_kernels.json). No step waits for it, and the smaller ones waste less.
LEAST_GRANULE = 16 << 20
# Between two pieces that are cleared: a fifth of a step, so that a step lasts a few clearings longer and not all.
REST_SECONDS = 0.001


class ElasticStart:
    """First `allocate`, called by vLLM, then `finish`."""

    def __init__(self, speculator: Any) -> None:
        """`speculator` has its model loaded."""
        self._draft_layers: set[str] = speculator.draft_attn_layer_names
        self._weights = DraftWeights(speculator.model.parameters())
        self._cache: ElasticCache | None = None
        self._device = torch.device("cpu")

    def allocate(
        self, config: Any, device: torch.device, layout: Any, kernel_block_sizes: list[int]
    ) -> dict[str, torch.Tensor]:
        """Each layer's view of its blocks, in place of vLLM's `allocate_kv_cache`; RefusalError when that cannot be."""
        self._device = device
        made = make_layout(config, self._draft_layers, layout, kernel_block_sizes)
        memory = _memory_of(device)
        # Their memory is part of what the pool is made of.
        self._weights.leave(free_host_bytes=free_host_bytes(), driver=_driver_of(device))
        try:
            cache = ElasticCache(
                memory,
                made.pages,
                made.blocks,
                weights=self._weights.nbytes,
                least_granule=LEAST_GRANULE,
            )
        except MemoryCallError as error:
            raise RefusalError(f"{SETTING}: {error}; lower --gpu-memory-utilization, or set it to false") from error
        for buffer in (*cache.kept(), *cache.draft_blocks()):
            # As vLLM's own allocation is.
            buffer.zero_()
        self._weights.settle(cache.room_for_weights())
        self._cache = cache
        return made.views(cache, layout)

    def finish(self, block_tables: Any) -> ElasticMemory:
        """For the runner's tables (vllm.v1.worker.gpu.block_table.BlockTables): of all requests, and of a step's."""
        if self._cache is None:
            raise RuntimeError("vLLM did not allocate a KV cache where it does in the recorded version")
        tables = [*(table.gpu for table in block_tables.block_tables), *block_tables.input_block_tables]
        rest = partial(sleep, REST_SECONDS)
        return ElasticMemory(self._cache, self._weights, tables, Background(self._device), rest)


def _memory_of(device: torch.device) -> Memory:
    try:
        return CudaMemory(device.index)
    except ImportError as error:
        raise RefusalError(
            f"{SETTING}: the package cuda-bindings is required to map memory of a GPU, found none ({error}); install "
            f"it, or set it to false"
        ) from error
    except MemoryCallError as error:
        raise RefusalError(f"{SETTING}: {error}; set it to false") from error


def _driver_of(device: torch.device) -> Any | None:
    """Once `_memory_of` has found that the package is there."""
    return importlib.import_module("cuda.bindings.driver") if device.type == "cuda" else None
