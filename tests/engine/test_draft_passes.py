"""The choice between two passes, by made-up times."""

import pytest

from nightjar_api.engine.v1 import engine_pb2
from nightjar_engine_patch.draft_passes import DraftPasses, timed_pass
from nightjar_engine_patch.info import tell_of_worker
from nightjar_engine_patch.step_measure import StepMeasure


@pytest.mark.parametrize(
    ("vllm_us", "fused_us", "path"),
    [
        ([1200, 1190, 1210], [600, 610, 605], "fused"),
        ([900, 910, 905], [1000, 1010, 1005], "vllm"),
        ([900, 900, 900], [900, 900, 900], "vllm"),
        # One run that something disturbed decides nothing.
        ([900, 900, 900], [800, 800, 90_000], "fused"),
        ([900, 900, 90_000], [950, 950, 950], "vllm"),
    ],
)
def test_the_faster_pass_is_chosen_and_of_equal_ones_vllms(vllm_us, fused_us, path):
    assert timed_pass(4, 1, 672, is_long=False, vllm_us=vllm_us, fused_us=fused_us).path == path


TIMED = (
    timed_pass(1, 2, 552, is_long=False, vllm_us=[1200.26], fused_us=[640.01]),
    timed_pass(16, 1, 4096, is_long=True, vllm_us=[1500], fused_us=[1800]),
)


def test_the_log_has_all_of_it_in_one_line():
    assert str(DraftPasses(TIMED, tiles="NVIDIA H200's, shipped")) == (
        "fused / vLLM's in µs: 1 × 2 at 552: 640 / 1200, fused; 16 × 1 at 4096: 1800 / 1500, vllm; "
        "tile sizes NVIDIA H200's, shipped"
    )
    assert str(DraftPasses(refusal="no such draft")) == "vLLM's own everywhere: no such draft"


def test_the_engine_tells_what_its_worker_chose():
    info = engine_pb2.EngineInfo()
    tell_of_worker(info, StepMeasure(7, passes=DraftPasses(TIMED, tiles="NVIDIA H200's, shipped")))
    assert info.draft_tiles == "NVIDIA H200's, shipped"
    assert (info.draft_weight_bytes, info.fused_draft_refusal) == (7, "")
    assert [(one.requests, one.tokens, one.context, one.long_contexts, one.path) for one in info.draft_passes] == [
        (1, 2, 552, False, "fused"),
        (16, 1, 4096, True, "vllm"),
    ]
    assert info.draft_passes[0].vllm_us == pytest.approx(1200.3)
    assert info.draft_passes[0].fused_us == 640


@pytest.mark.parametrize(
    ("passes", "reason"), [(DraftPasses(refusal="no such draft"), "no such draft"), (None, "a GPU is required")]
)
def test_the_engine_tells_why_there_was_nothing_to_choose(passes, reason):
    info = engine_pb2.EngineInfo()
    tell_of_worker(info, StepMeasure(7, passes=passes))
    assert reason in info.fused_draft_refusal
    assert not info.draft_passes
