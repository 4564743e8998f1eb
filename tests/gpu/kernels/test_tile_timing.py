from dataclasses import replace

import pytest

from nightjar_benchmarks.profile.draft_shape import DraftShape
from nightjar_benchmarks.profile.tile_search import cases
from nightjar_benchmarks.profile.tile_timing import Kernels, compile_all, jobs_of, time_case
from nightjar_kernels.tiles import DEFAULT, HeadTile

SHAPE = DraftShape(
    hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2, vocab_size=32000
)
CASES = {case.what: case for case in cases(SHAPE, 132, DEFAULT)}


@pytest.fixture(scope="module")
def kernels():
    return Kernels(SHAPE, "cuda", 132)


@pytest.mark.parametrize("what", ["linear, 4864 inputs, 2 tokens", "head", "attention"])
def test_every_candidate_has_a_time_above_that_of_what_it_reads(what, kernels):
    case = CASES[what]
    refused = compile_all(kernels, [job for tile in case.candidates for job in jobs_of(case, tile)])
    assert not refused
    megabytes = {"linear, 4864 inputs, 2 tokens": 8.7, "head": 57.3, "attention": 2.4}[what]
    # No device reads 10 TB/s of weights that it did not keep.
    assert all(0.1 * megabytes < us < 10_000 for us in time_case(kernels, refused, case))


def test_a_tile_that_is_too_large_for_the_device_is_refused_and_has_no_time(kernels):
    large = HeadTile(tokens=256, inputs=128, stages=8)
    (job,) = jobs_of(CASES["head"], large)
    assert "out of resource" in kernels.refusal(job)
    case = replace(CASES["head"], candidates=(DEFAULT.head, large))
    present, none = time_case(kernels, {job}, case)
    assert present > 0
    assert none is None
