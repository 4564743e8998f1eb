"""What an engine says of itself, by its runner; vLLM's configuration is as much as is looked at."""

from types import SimpleNamespace

import pytest

from nightjar_engine_patch.info import engine_info, tell_of_worker
from nightjar_engine_patch.refusals import CPU_V1, GPU_V2
from nightjar_engine_patch.settings import parse
from nightjar_engine_patch.step_measure import CapturedGraphs, StepMeasure

BLOCKS = 10


def layers(names, page):
    return SimpleNamespace(size=BLOCKS * 500, layers=names, layer_stride=BLOCKS * page, block_stride=page)


def told(runner):
    config = SimpleNamespace(
        speculative_config=SimpleNamespace(draft_model_config=SimpleNamespace(model="small"), num_speculative_tokens=3),
        model_config=SimpleNamespace(model="large"),
        parallel_config=SimpleNamespace(worker_cls=runner.worker_cls, tensor_parallel_size=1),
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        cache_config=SimpleNamespace(block_size=16),
        use_v2_model_runner=runner is GPU_V2,
    )
    tensors = [layers(["model.0", "model.1"], 200), layers(["draft_model.0"], 100)]
    kv_cache = SimpleNamespace(num_blocks=BLOCKS, kv_cache_tensors=tensors)
    return engine_info(config, kv_cache, parse({"nightjar": {"socket": "e.sock", "elastic": True}}))


@pytest.mark.parametrize("runner", [CPU_V1, GPU_V2], ids=lambda runner: runner.name)
def test_memory_may_change_hands_with_either_runner_and_weights_leave_gpus_only(runner):
    info = told(runner)
    assert info.runner == runner.name
    assert info.elastic_unsupported_reason == ""
    assert info.draft_weights_stay == (runner is CPU_V1)


def test_the_drafts_share_of_a_block_is_told():
    info = told(GPU_V2)
    assert (info.blocks, info.block_bytes, info.draft_block_bytes) == (BLOCKS, 500, 100)


def test_what_only_workers_know_comes_with_the_first_step():
    info = told(GPU_V2)
    tell_of_worker(info, StepMeasure(700, CapturedGraphs(12, 3.5, 1 << 33)))
    assert info.draft_weight_bytes == 700
    assert (info.draft_graphs.captured, info.draft_graphs.seconds, info.draft_graphs.bytes) == (12, 3.5, 1 << 33)


def test_an_engine_that_captures_nothing_says_nothing_of_graphs():
    info = told(CPU_V1)
    tell_of_worker(info, StepMeasure(700))
    assert not info.HasField("draft_graphs")
