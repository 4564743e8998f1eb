"""Which KV caches can be elastic; and the ids a runner remembers after blocks moved."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nightjar_engine_patch.cpu.elastic_remap import remap
from nightjar_engine_patch.errors import RefusalError
from nightjar_kernels.moves import block_moves

with warnings.catch_warnings():
    # Importing vLLM warns of its own use of torch.
    warnings.simplefilter("ignore")
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheTensor,
        MLAAttentionSpec,
        SlidingWindowSpec,
        UniformTypeKVCacheSpecs,
    )

    from nightjar_engine_patch.cpu.elastic_layers import make_cache

HEADS = {"block_size": 32, "num_kv_heads": 2, "dtype": torch.float32}
TARGET, DRAFT = FullAttentionSpec(head_size=64, **HEADS), FullAttentionSpec(head_size=32, **HEADS)


def config(*groups, blocks=64):
    """A cache of groups of (layer, spec), laid out as vLLM's CPU build does."""
    tensors = [
        KVCacheTensor(
            size=0, layers=[layer], layer_stride=blocks * spec.page_size_bytes, block_stride=spec.page_size_bytes
        )
        for group in groups
        for layer, spec in group.items()
    ]
    made = [
        KVCacheGroupSpec(list(group), UniformTypeKVCacheSpecs(block_size=32, kv_cache_specs=group)) for group in groups
    ]
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=tensors, kv_cache_groups=made)


def test_layers_of_target_and_draft_become_tenants_by_their_pages():
    cache = make_cache(config({"t": TARGET, "d": DRAFT}), {"d"})
    assert (cache.blocks, cache.most) == (64, 96)
    assert cache.buffer("t").numel() == 96 * TARGET.page_size_bytes
    assert cache.buffer("d").numel() == 64 * DRAFT.page_size_bytes
    cache.pool.close()


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([{"t": TARGET}, {"d": DRAFT}], r"one KV cache group is required, found 2 \(a hybrid model\)"),
        (
            [{"t": TARGET, "d": SlidingWindowSpec(head_size=32, sliding_window=64, **HEADS)}],
            r"full attention in every layer is required, found \['SlidingWindowSpec'\]",
        ),
        (
            [{"t": MLAAttentionSpec(head_size=64, **(HEADS | {"num_kv_heads": 1})), "d": DRAFT}],
            r"full attention in every layer is required, found \['MLAAttentionSpec'\]",
        ),
    ],
)
def test_what_the_pool_cannot_hold_is_refused_with_the_setting(groups, message):
    with pytest.raises(RefusalError, match=rf"^additional_config\.nightjar\.elastic: {message}; set it to false"):
        make_cache(config(*groups), {"d"})


def test_tables_and_the_lists_behind_them_have_the_new_ids():
    table = SimpleNamespace(
        block_table=SimpleNamespace(cpu=torch.tensor([[1, 8, 9, 0], [7, 9, 9, 9], [8, 8, 8, 8]], dtype=torch.int32)),
        num_blocks_per_row=np.array([3, 2, 4], dtype=np.int32),
    )
    states = {"a": SimpleNamespace(block_ids=([1, 8, 9],)), "b": SimpleNamespace(block_ids=([7, 9],))}
    runner = SimpleNamespace(
        input_batch=SimpleNamespace(num_reqs=2, block_table=SimpleNamespace(block_tables=[table])), requests=states
    )
    remap(runner, block_moves([(8, 2), (9, 3)], num_blocks=10, device="cpu"))
    assert table.block_table.cpu.tolist() == [[1, 2, 3, 0], [7, 3, 9, 9], [8, 8, 8, 8]]
    assert [state.block_ids for state in states.values()] == [([1, 2, 3],), ([7, 3],)]
