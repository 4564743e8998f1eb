"""The estimate of regret: what the policy believes was lost, and when it says nothing."""

from dataclasses import replace

import pytest

from nightjar_sidecar.policies.fixed import Fixed
from nightjar_sidecar.policies.nightjar import Nightjar
from nightjar_sidecar.regret import Regret, lost
from nightjar_sidecar.space import Space

SPACE = Space.of(5, [1, 2, 4, 8, 16, 32, 64, 128])


@pytest.fixture
def round_(toy):
    """12 tokens for each of 4 requests, at γ = 2."""
    return replace(toy(0).run(4, 2), tokens=48, prefill_share=0.0)


def test_it_is_what_the_tokens_of_a_round_would_have_taken_less_at_the_best_length(round_):
    found = lost({0: 0.010, 1: 0.006, 2: 0.008}, round_)
    assert found.seconds == pytest.approx(12 * 0.002)
    assert found.predicted == pytest.approx(12 * 0.008)


def test_the_best_length_has_none(round_):
    assert lost({0: 0.010, 2: 0.008}, round_).seconds == 0


@pytest.mark.parametrize("believed", [{}, {2: 0.008}, {0: 0.010, 1: 0.006}])
def test_without_a_belief_about_the_length_that_was_used_and_about_another_nothing_is_estimated(round_, believed):
    assert lost(believed, round_) is None


def test_rounds_full_of_prompts_or_without_tokens_are_left_out(round_):
    believed = {0: 0.010, 2: 0.008}
    assert lost(believed, replace(round_, prefill_share=0.5)) is None
    assert lost(believed, replace(round_, tokens=0)) is None


@pytest.mark.parametrize(("batch", "gamma"), [(2, 0), (2, 1), (64, 1), (64, 3)])
def test_once_the_policy_has_learnt_the_estimate_is_near_the_truth(toy, batch, gamma):
    """The toy's true costs are known; the lengths here are not the best of their batches."""
    world, policy = toy(0), Nightjar(SPACE)
    world.play(policy, batch, 600)
    taken = world.run(batch, gamma)
    truth = world.cost(batch, gamma) - world.cost(batch, world.best(batch, SPACE.gamma_max))
    found = lost(policy.score(world.context(batch)), taken)
    assert found.seconds == pytest.approx(truth * taken.tokens / batch, rel=0.3)
    assert found.seconds / found.predicted == pytest.approx(truth / world.cost(batch, gamma), rel=0.3)


def test_a_policy_that_learns_loses_a_few_per_cent_and_one_that_is_made_to_do_the_wrong_thing_more(toy):
    world, policy, mine, wrong = toy(0), Nightjar(SPACE), Regret(), Regret()

    def believed(batch):
        return policy.score(world.context(batch))

    world.play(policy, 4, 300)
    for _ in range(300):
        taken = world.run(4, policy.predict(world.context(4)).gamma)
        mine.observe(taken, believed)
        policy.learn(taken)
    for _ in range(100):
        wrong.observe(world.run(4, 0), believed)
    assert mine.rounds == 300
    assert mine.share < 0.05
    assert wrong.share > 0.2


def test_a_policy_that_believes_nothing_has_none(toy):
    world, policy, regret = toy(0), Fixed(2), Regret()
    for _ in range(20):
        assert regret.observe(world.run(4, 2), lambda batch: policy.score(world.context(batch))) is None
    assert (regret.share, regret.rounds) == (None, 0)


def test_beliefs_are_asked_for_once_in_some_rounds_for_every_batch(toy):
    world, regret, asked = toy(0), Regret(), []

    def believed(batch):
        asked.append(batch)
        return {0: 0.010, 1: 0.006}

    for batch in (4, 4, 5, 4, 5, 4, 4, 4, 4):
        regret.observe(world.run(batch, 0), believed)
    assert asked == [4, 5, 4]


def test_old_rounds_fade(toy):
    world, regret = toy(0), Regret()
    for _ in range(2000):
        regret.observe(world.run(1, 0), lambda _: {0: 0.010, 1: 0.005})
    assert regret.share == pytest.approx(0.5)
    for _ in range(8000):
        regret.observe(world.run(1, 1), lambda _: {0: 0.010, 1: 0.005})
    assert regret.share < 0.001
