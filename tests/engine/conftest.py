"""Plans, step records and requests with everything but what a test is about filled in."""

from dataclasses import fields
from random import Random

import pytest

from nightjar_api.engine.v1 import engine_pb2
from nightjar_benchmarks.pairs import TINY, make_pair, random_prompt
from nightjar_engine_patch.reports import StepRecord
from nightjar_engine_patch.step_measure import StepMeasure

# Tokens that a request to the engines in `real` may have.
CONTEXT = 512


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    """In region 0 of its vocabulary a draft that has read everything is always right, in region 1 often."""
    return make_pair(tmp_path_factory.mktemp("pair"), TINY, [1.0, 0.6], 3)


@pytest.fixture
def make_record():
    """`make_record(7, waiting=3)`: the record of step 7, all else 0 or empty."""

    def make(step, **values):
        zeros = {field.name: 0 for field in fields(StepRecord)}
        nothing = {
            "drafts": {},
            "proposed": None,
            "row_of": {},
            "lengths": [],
            "emitted": [],
            "drafted": (0, 0),
            "measure": StepMeasure(0),
            "residency": engine_pb2.DRAFT_RESIDENCY_ON_DEVICE,
        }
        return StepRecord(**(zeros | nothing | {"step": step} | values))

    return make


@pytest.fixture(scope="session")
def make_plan():
    """`make_plan((8, [(3, 2)], 1), version=5)`: up to batch 8, γ = 3 for two steps and then 1."""

    def make(*buckets, version=1, ttl_ms=60_000):
        return engine_pb2.Plan(
            version=version,
            ttl_ms=ttl_ms,
            buckets=[
                engine_pb2.BucketPlan(
                    max_batch=max_batch,
                    schedule=[engine_pb2.Segment(gamma=gamma, steps=steps) for gamma, steps in schedule],
                    hold_gamma=hold,
                )
                for max_batch, schedule, hold in buckets
            ],
        )

    return make


@pytest.fixture(scope="session")
def restless():
    """A schedule in which γ changes every few steps, for longer than any test."""
    return [(3, 7), (0, 9), (1, 5), (0, 3), (2, 4), (5, 6)] * 40


@pytest.fixture(scope="session")
def crowd(pair):
    """`crowd([0, 1], 48, seed)`: requests as (prompt, tokens), of both regions in turn."""

    def make(regions, number, seed):
        random = Random(seed)
        common = {region: random_prompt(pair, region, 200, seed) for region in regions}
        return [request(pair, common, regions[i % len(regions)], i // len(regions) % 4, random) for i in range(number)]

    return make


def request(pair, common, region, kind, random):
    seed = random.randrange(2**32)
    match kind:
        case 0:
            return random_prompt(pair, region, random.randrange(64, 200), seed), 260
        case 1:
            return common[region] + random_prompt(pair, region, random.randrange(60), seed), 60
        case 2:
            # One token more than full blocks: all but one are found in the prefix cache.
            return common[region][:193], random.randrange(8, 40)
        case _:
            # Into the end of the context.
            prompt = random_prompt(pair, region, random.randrange(440, 505), seed)
            return prompt, CONTEXT - len(prompt)
