"""What the plugin refuses at its start, a document is refused for before there is a pod that crashes."""

import copy
from types import SimpleNamespace

import pytest

from nightjar_api import service
from nightjar_api.errors import ConfigurationError
from nightjar_engine_patch.activation import every_length
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.refusals import CPU_V1, GPU_V2, check_configuration
from nightjar_engine_patch.settings import parse

DOCUMENT = {
    "apiVersion": "nightjar.dev/v1alpha1",
    "kind": "NightjarService",
    "metadata": {"name": "story"},
    "spec": {"target": {"source": {"path": "/t"}}, "draft": {"source": {"path": "/d"}}},
}


def configuration(tensor_parallel_size=1, runner=CPU_V1, **scheduler):
    """As much of vLLM's as is looked at."""
    seen = {"scheduler_cls": None, "async_scheduling": runner is GPU_V2}
    sizes = {"max_num_seqs": 256, "max_num_batched_tokens": 8192}
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            method="draft_model",
            parallel_drafting=False,
            draft_sample_method="greedy",
            use_heterogeneous_vocab=False,
            num_speculative_tokens_per_batch_size=None,
            num_speculative_tokens=3,
        ),
        scheduler_config=SimpleNamespace(**(seen | sizes | scheduler)),
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=1,
            tensor_parallel_size=tensor_parallel_size,
            data_parallel_size=1,
            worker_cls=runner.stock_worker,
        ),
        model_config=SimpleNamespace(enable_sleep_mode=False, enable_cumem_allocator=False),
        kv_transfer_config=None,
        lora_config=None,
        use_v2_model_runner=runner is GPU_V2,
    )


def document(tensor_parallel_size):
    changed = copy.deepcopy(DOCUMENT)
    changed["spec"]["engine"] = {"tensorParallelSize": tensor_parallel_size}
    return changed


def test_one_gpu_is_taken_by_both():
    settings = parse({"nightjar": {"socket": "e.sock"}})
    assert check_configuration(configuration(), settings) is CPU_V1
    assert check_configuration(configuration(runner=GPU_V2), settings) is GPU_V2
    assert service.from_object(document(1)).spec.engine.tensor_parallel_size == 1


def test_a_model_shared_among_gpus_is_refused_by_both():
    settings = parse({"nightjar": {"socket": "e.sock"}})
    with pytest.raises(RefusalError, match=r"parallel_config\.tensor_parallel_size: Nightjar requires 1, found 2"):
        check_configuration(configuration(2), settings)
    # Once the plugin takes it, this rule of the document goes.
    with pytest.raises(ConfigurationError, match=r"spec\.engine\.tensorParallelSize: 1 beside a draft of method"):
        service.from_object(document(2))


def test_a_gpu_engine_is_refused_with_what_its_graphs_need():
    settings = parse({"nightjar": {"socket": "e.sock"}})
    for wrong, message in (
        ({"max_num_seqs": 3}, r"max_num_seqs: at least .* \+ 1 \(4\) is required, found 3; raise --max-num-seqs"),
        ({"max_num_batched_tokens": 511}, r"max_num_batched_tokens: at least twice max_num_seqs \(512\) is required"),
        ({"async_scheduling": False}, r"async_scheduling: Nightjar requires True, found False"),
    ):
        with pytest.raises(RefusalError, match=message):
            check_configuration(configuration(runner=GPU_V2, **wrong), settings)


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_elastic_memory_is_taken_by_both(device):
    settings = parse({"nightjar": {"socket": "e.sock", "elastic": True}})
    runner = {"cuda": GPU_V2, "cpu": CPU_V1}[device]
    assert check_configuration(configuration(runner=runner), settings) is runner
    changed = document(1)
    changed["spec"] |= {"engine": {"device": device}, "memory": {"elastic": True}}
    assert service.from_object(changed).spec.memory.elastic


@pytest.mark.parametrize("runner", [GPU_V2, CPU_V1], ids=lambda runner: runner.name)
@pytest.mark.parametrize(
    ("part", "field", "found", "message"),
    [
        (
            None,
            "kv_transfer_config",
            "a connector",
            r"^kv_transfer_config: Nightjar requires None, found 'a connector'",
        ),
        ("parallel_config", "pipeline_parallel_size", 2, r"pipeline_parallel_size: Nightjar requires 1, found 2"),
        (
            "model_config",
            "enable_sleep_mode",
            True,
            r"enable_sleep_mode: elastic .* False, .*; drop --enable-sleep-mode,",
        ),
        (
            "model_config",
            "enable_cumem_allocator",
            True,
            r"enable_cumem_allocator: elastic .* found True: its pools keep .*; drop --enable-cumem-allocator, or set",
        ),
    ],
)
def test_elastic_memory_is_refused_beside_what_else_moves_or_splits_it(runner, part, field, found, message):
    settings = parse({"nightjar": {"socket": "e.sock", "elastic": True}})
    config = configuration(runner=runner)
    setattr(getattr(config, part) if part else config, field, found)
    with pytest.raises(RefusalError, match=message):
        check_configuration(config, settings)


def test_what_vllm_does_to_its_memory_is_its_own_affair_without_elastic_memory():
    config = configuration(runner=GPU_V2)
    config.model_config = SimpleNamespace(enable_sleep_mode=True, enable_cumem_allocator=True)
    assert check_configuration(config, parse({"nightjar": {"socket": "e.sock"}})) is GPU_V2


def test_a_model_runner_that_nobody_wrote_for_is_refused_by_name():
    settings = parse({"nightjar": {"socket": "e.sock"}})
    strange = configuration(runner=GPU_V2)
    strange.use_v2_model_runner = False
    with pytest.raises(RefusalError, match=r"found 'vllm\.v1\.worker\.gpu_worker\.Worker', model runner V1"):
        check_configuration(strange, settings)


def test_every_length_has_a_batch_size_in_vllms_table():
    assert every_length(3) == [(1, 1, 3), (2, 2, 2), (3, 3, 1), (4, 4, 0)]
