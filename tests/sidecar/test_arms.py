"""What rounds have shown of each arm, beside what a policy believes."""

import math
from random import Random

import pytest

from nightjar_sidecar.arms import Arm, Arms
from nightjar_sidecar.attribution import Round
from nightjar_sidecar.space import Bucket, Space

BUCKET = Bucket(1, 4)


def round_(seconds=0.01, gamma=2, **more):
    values = {"step": 1, "time_ns": 1, "batch": 4, "gamma": gamma, "tokens": 8, "draft_seconds": 0.0}
    return Round(forward_seconds=seconds, **(values | more))


def test_an_arm_counts_its_visits_and_means_their_seconds_per_token_of_one_request():
    arms = Arms()
    for seconds in (0.01, 0.03):
        arms.learn(BUCKET, round_(seconds))
    assert arms.arm(BUCKET, 2).visits == 2
    assert arms.arm(BUCKET, 2).mean == pytest.approx(0.02 * 4 / 8)
    assert arms.arm(BUCKET, 1).visits == 0


def test_rounds_full_of_prompts_or_without_tokens_say_nothing():
    arms = Arms()
    arms.learn(BUCKET, round_(prefill_share=0.9))
    arms.learn(BUCKET, round_(tokens=0))
    assert arms.arm(BUCKET, 2).visits == 0


def test_a_few_visits_give_no_margin():
    arm = Arm()
    for _ in range(4):
        arm.add(1.0)
        assert arm.margin is None
    arm.add(1.0)
    assert arm.margin == 0


@pytest.mark.parametrize("rounds", [5, 20, 120, 2000])
def test_the_margin_holds_the_true_mean_nineteen_times_out_of_twenty(rounds):
    rng = Random(1)
    held = 0
    for _ in range(300):
        arm = Arm()
        for _ in range(rounds):
            arm.add(rng.gauss(10, 2))
        held += abs(arm.mean - 10) <= arm.margin
    assert 0.91 <= held / 300 <= 0.985


def test_a_lasting_change_is_followed():
    arm = Arm()
    for seconds in [1.0] * 1000 + [2.0] * 1000:
        arm.add(seconds)
    assert arm.mean == pytest.approx(2.0, abs=0.01)
    assert math.isfinite(arm.margin)


def test_buckets_that_are_no_more_are_forgotten():
    arms = Arms()
    for bucket in (BUCKET, Bucket(5, 8)):
        arms.learn(bucket, round_())
    arms.keep(Space.of(3, [4, 16]))
    assert [arms.arm(bucket, 2).visits for bucket in (BUCKET, Bucket(5, 8))] == [1, 0]
