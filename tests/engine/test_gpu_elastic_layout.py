"""How the KV of target and draft is laid out on a GPU, and how vLLM gets it; on the pool of ordinary memory."""

import warnings
from types import SimpleNamespace

import pytest
import torch

from nightjar_engine_patch.elastic.cache import ElasticCache
from nightjar_engine_patch.errors import RefusalError
from nightjar_kernels.physical_pool import MemoryCallError
from nightjar_kernels.physical_pool.cpu import CpuMemory

with warnings.catch_warnings():
    # Importing vLLM warns of its own use of torch.
    warnings.simplefilter("ignore")
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheTensor,
        MLAAttentionSpec,
        UniformTypeKVCacheSpecs,
    )
    from vllm.v1.kv_cache_layout import KVCacheLayout
    from vllm.v1.worker.gpu import attn_utils

    from nightjar_engine_patch.gpu import elastic_start
    from nightjar_engine_patch.gpu.elastic_allocation import allocating_by
    from nightjar_engine_patch.gpu.elastic_layout import DRAFT, TARGET, make_layout
    from nightjar_engine_patch.gpu.elastic_start import ElasticStart

TOKENS, BLOCKS = 16, 32
HEADS = {"block_size": TOKENS, "num_kv_heads": 2, "dtype": torch.bfloat16}
BIG, SMALL = FullAttentionSpec(head_size=64, **HEADS), FullAttentionSpec(head_size=32, **HEADS)
LAYERS = {"t.0": BIG, "t.1": BIG, "draft_model.0": SMALL, "draft_model.1": SMALL, "draft_model.2": SMALL}
DRAFT_LAYERS = {"draft_model.0", "draft_model.1", "draft_model.2"}


def config(layers=LAYERS, groups=None):
    """As vLLM makes it on GPUs: layers of one spec share a tensor, each with a region of its own."""
    by_spec, offset, tensors = {}, 0, []
    for name, spec in layers.items():
        by_spec.setdefault(spec, []).append(name)
    for spec, names in by_spec.items():
        page = spec.page_size_bytes
        tensors.append(
            KVCacheTensor(size=0, layers=names, layer_stride=page * BLOCKS, block_stride=page, offset=offset)
        )
        offset += len(names) * page * BLOCKS
    made = [
        KVCacheGroupSpec(list(group), UniformTypeKVCacheSpecs(block_size=TOKENS, kv_cache_specs=group))
        for group in groups or [layers]
    ]
    return KVCacheConfig(num_blocks=BLOCKS, kv_cache_tensors=tensors, kv_cache_groups=made)


def layout_of(*args, draft_layers=DRAFT_LAYERS, layout=KVCacheLayout.LBNHC, kernel=(TOKENS,), **kwargs):
    return make_layout(config(*args, **kwargs), draft_layers, layout, kernel)


@pytest.fixture
def cache():
    cache = ElasticCache(CpuMemory(), layout_of().pages, BLOCKS)
    yield cache
    cache.pool.close()


def bytes_of(view, block):
    """Addresses of a layer's block, which is one run: the first, and the one behind the last."""
    page = view[block]
    reach = 1 + sum((size - 1) * stride for size, stride in zip(page.shape, page.stride(), strict=True))
    assert reach == page.numel()
    return page.data_ptr(), page.data_ptr() + page.nbytes


def test_all_layers_of_a_models_block_follow_each_other_and_blocks_follow_blocks(cache):
    views = layout_of().views(cache, KVCacheLayout.LBNHC)
    for buffer, names in ((TARGET, ["t.0", "t.1"]), (DRAFT, sorted(DRAFT_LAYERS))):
        at = cache.buffer(buffer).data_ptr()
        for block in range(3):
            for name in names:
                first, end = bytes_of(views[name], block)
                assert first == at
                at = end


def test_the_targets_views_reach_as_far_as_it_can_grow_and_the_drafts_do_not(cache):
    views = layout_of().views(cache, KVCacheLayout.LBNHC)
    assert {name: len(view) for name, view in views.items()} == {
        name: BLOCKS if name in DRAFT_LAYERS else cache.most for name in LAYERS
    }
    assert cache.most == BLOCKS + BLOCKS * 3 * SMALL.page_size_bytes // (2 * BIG.page_size_bytes)


def test_inside_of_a_page_the_order_is_the_layouts(cache):
    for layout, heads, tokens in ((KVCacheLayout.LBNHC, 1, 2), (KVCacheLayout.LBHNC, TOKENS, 1)):
        view = layout_of(layout=layout).views(cache, layout)["t.0"]
        assert view.shape[1:3] == (2, TOKENS)
        content = view.shape[3]
        assert view.stride()[1:] == (heads * content, tokens * content, 1)


def test_layers_of_one_shape_are_told_apart_by_whose_they_are():
    same = {"t.0": BIG, "draft_model.0": BIG, "t.1": BIG}
    parts = layout_of(same, draft_layers={"draft_model.0"}).parts
    assert parts[TARGET].block_bytes == 2 * BIG.page_size_bytes
    assert [tensor.layers for _, tensor in parts[TARGET].placements] == [["t.0", "t.1"]]
    assert [tensor.layers for _, tensor in parts[DRAFT].placements] == [["draft_model.0"]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layout": KVCacheLayout.BHLNC}, r"a layer's block is one run is required, found BHLNC"),
        ({"kernel": (TOKENS // 2,)}, r"found sizes \[8, 16\]; set --block-size to 8"),
        ({"groups": [{"t.0": BIG, "t.1": BIG}, {"draft_model.0": SMALL}]}, r"one KV cache group is required, found 2"),
        (
            {"layers": {"t.0": MLAAttentionSpec(head_size=64, **(HEADS | {"num_kv_heads": 1})), "draft_model.0": BIG}},
            r"full attention in every layer is required, found \['MLAAttentionSpec'\]",
        ),
        (
            {"layers": LAYERS | {"draft_model.0": FullAttentionSpec(head_size=32, **(HEADS | {"dtype": torch.int8}))}},
            r"one KV cache precision for target and draft is required",
        ),
    ],
)
def test_what_the_pool_cannot_hold_is_refused_with_the_setting(wrong, message):
    with pytest.raises(RefusalError, match=rf"^additional_config\.nightjar\.elastic: .*{message}"):
        layout_of(**wrong)


class LayerDouble:
    """As much of an attention layer as gets its KV cache."""

    def bind_kv_cache(self, kv_cache):
        self.kv_cache = kv_cache


class SpeculatorDouble:
    """A draft that is loaded."""

    draft_attn_layer_names = DRAFT_LAYERS

    def __init__(self):
        self.model = torch.nn.Linear(64, 64)


def test_vllm_binds_our_views_to_its_layers_and_allocates_by_itself_again_afterwards(monkeypatch):
    """The real `init_kv_cache` of vLLM's runner, of which only the device is missing."""
    monkeypatch.setattr(elastic_start, "_memory_of", lambda _: CpuMemory())
    speculator = SpeculatorDouble()
    expected = [weight.clone() for weight in speculator.model.parameters()]
    start = ElasticStart(speculator)
    layers = {name: LayerDouble() for name in LAYERS}
    vllm_config = SimpleNamespace(
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=SimpleNamespace(get_resolved_kv_cache_layout=lambda: KVCacheLayout.LBNHC),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="any")),
    )
    monkeypatch.setattr(attn_utils, "get_shared_kv_cache_layers", lambda _: {})
    original = attn_utils.allocate_kv_cache
    with allocating_by(start.allocate):
        found = attn_utils.init_kv_cache(layers, config(), torch.device("cpu"), [TOKENS], vllm_config)
    assert attn_utils.allocate_kv_cache is original
    assert set(found) == set(LAYERS)
    for name, layer in layers.items():
        assert layer.kv_cache.data_ptr() == found[name].data_ptr()
        assert not bool(layer.kv_cache[:BLOCKS].view(torch.int16).any())
    assert all(torch.equal(one, other) for one, other in zip(speculator.model.parameters(), expected, strict=True))


NO_MAPPING = MemoryCallError("a device with virtual memory management is required, found one without it")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        (
            ImportError("No module named 'cuda'"),
            r"the package cuda-bindings is required .* found none \(No module named",
        ),
        (NO_MAPPING, r"a device with virtual memory management is required, .*; set it to false$"),
    ],
)
def test_a_platform_without_virtual_memory_is_refused_and_nothing_has_left(monkeypatch, missing, message):
    def refuse(_):
        raise missing

    monkeypatch.setattr(elastic_start, "CudaMemory", refuse)
    speculator = SpeculatorDouble()
    with pytest.raises(RefusalError, match=rf"^additional_config\.nightjar\.elastic: {message}"):
        allocate(speculator)
    assert all(weight.numel() for weight in speculator.model.parameters())


def test_a_device_that_has_too_little_is_refused(monkeypatch):
    class Full(CpuMemory):
        def create(self, size):
            raise MemoryCallError(f"cuMemCreate({size}, 0) failed")

    monkeypatch.setattr(elastic_start, "_memory_of", lambda _: Full())
    with pytest.raises(RefusalError, match=r"nightjar\.elastic: cuMemCreate.* failed; lower --gpu-memory-utilization"):
        allocate(SpeculatorDouble())


def test_a_host_that_has_too_little_for_the_copy_is_refused(monkeypatch):
    monkeypatch.setattr(elastic_start, "_memory_of", lambda _: CpuMemory())
    monkeypatch.setattr(elastic_start, "free_host_bytes", lambda: 1000)
    with pytest.raises(
        RefusalError, match=r"bytes of host memory are required for a pinned copy .* 1000 are free; raise"
    ):
        allocate(SpeculatorDouble())


def allocate(speculator):
    return ElasticStart(speculator).allocate(config(), torch.device("cpu"), KVCacheLayout.LBNHC, [TOKENS])
