from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.ada_bingreedy import AdaBinGreedy, Fidelity
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.space import Space

SPACE = Space.of(3, [8, 64])


class NoExploring(Random):
    """A coin that always says exploit, except where the chance is 1."""

    def random(self):
        return 1.0 - 1e-12


def round_(gamma, *, seconds=0.01, tokens=4, batch=4, prefill_share=0.0):
    return Round(1, 0, batch, gamma, 0.0, seconds, tokens, prefill_share=prefill_share)


def exploring_share(fidelity, visits, seeds=30):
    explored = 0
    for seed in range(seeds):
        policy = AdaBinGreedy(SPACE, Random(seed), fidelity)
        for _ in range(visits):
            decision = policy.plan(Context(4, 0, 0.0))
            explored += bool(decision.schedule)
            gamma = decision.choice.gamma
            policy.learn(round_(gamma, seconds=0.01 + 0.001 * gamma))
    return explored / visits / seeds


@pytest.mark.parametrize(
    ("coin", "visits", "share"),
    [("1/b", 100, 0.48), ("1/b", 1000, 0.22), ("1/sqrt(b)", 100, 0.67), ("1/sqrt(b)", 1000, 0.42)],
)
def test_the_share_of_exploring_visits_is_that_of_the_reconstruction(coin, visits, share):
    assert exploring_share(Fidelity(coin=coin), visits) == pytest.approx(share, abs=0.06)


def test_blocks_double_and_bins_are_the_root_of_their_block():
    policy = AdaBinGreedy(SPACE, NoExploring(0))
    bins = []
    for _ in range(63):
        timeline = policy._timeline(4)
        policy.predict(Context(4, 0, 0.0))
        bins.append((timeline.block, timeline.bin, timeline.bin_visits))
        policy.learn(round_(policy.predict(Context(4, 0, 0.0)).gamma))
    blocks = [block for block, _, _ in bins]
    # Rounded-down bins may overrun a block that is no square: 3 bins of 2 visits hold 4 + 2 of block 8.
    assert [blocks.count(block) for block in range(1, 6)] == [1, 2, 4, 8, 16]
    assert {block: visits for block, _, visits in bins} == {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 5}
    assert max(bin_ for block, bin_, _ in bins if block == 5) == 4


def test_every_block_opens_with_an_exploring_bin():
    policy = AdaBinGreedy(SPACE, NoExploring(0))
    for _ in range(200):
        decision = policy.plan(Context(4, 0, 0.0))
        assert bool(decision.schedule) == (policy._timeline(4).bin == 1)
        policy.learn(round_(decision.choice.gamma))


def test_the_arm_is_locked_for_its_bin_and_then_the_exploited_one_is_held():
    policy = AdaBinGreedy(SPACE, Random(1))
    for _ in range(500):
        decision = policy.plan(Context(4, 3, 0.0))
        assert len(decision.schedule) <= 1
        policy.learn(round_(decision.choice.gamma, seconds=0.01 - 0.001 * decision.choice.gamma))
    assert policy.plan(Context(4, 3, 0.0)).hold == 3


def test_without_the_lock_an_exploring_bin_draws_at_every_visit():
    policy = AdaBinGreedy(SPACE, Random(1), Fidelity(lock=False))
    longest = 0
    for _ in range(500):
        decision = policy.plan(Context(4, 3, 0.0))
        longest = max(longest, len(decision.schedule))
        policy.learn(round_(decision.choice.gamma))
    assert longest > 1


def taught(fidelity=None, **losses):
    policy = AdaBinGreedy(SPACE, NoExploring(0), fidelity)
    for gamma in range(4):
        policy.learn(round_(gamma, seconds=losses.get(f"gamma{gamma}", 1.0)))
    return policy


def test_a_return_from_zero_is_charged_the_switch_cost_over_the_length():
    policy = taught(gamma0=0.0101, gamma1=0.009, gamma2=0.008, gamma3=0.0085)
    assert policy._exploit(Context(4, 1, 0.1)) == 2
    assert policy._exploit(Context(4, 0, 0.1)) == 0
    assert policy._exploit(Context(4, 0, 0.004)) == 3  # 8.5 + 4/3 ms beats 8 + 4/2 ms and 10 ms


def test_untried_arms_are_exploited_first():
    policy = AdaBinGreedy(SPACE, NoExploring(0))
    policy.learn(round_(0))
    assert policy._exploit(Context(4, 0, 9.0)) == 1


def test_the_loss_is_the_latency_per_token_of_one_request():
    policy = taught()
    policy = AdaBinGreedy(SPACE, Random(0))
    policy.learn(round_(2, seconds=0.03, tokens=12, batch=4))
    assert policy.score(Context(4, 0, 0.0)) == {2: pytest.approx(0.01)}


def test_the_mean_is_of_losses_or_of_goodputs():
    loss, goodput = AdaBinGreedy(SPACE, Random(0)), AdaBinGreedy(SPACE, Random(0), Fidelity(mean_of="goodput"))
    for policy in (loss, goodput):
        policy.learn(round_(1, seconds=0.01))
        policy.learn(round_(1, seconds=0.03))
    assert loss.score(Context(4, 0, 0.0))[1] == pytest.approx(0.02)
    assert goodput.score(Context(4, 0, 0.0))[1] == pytest.approx(0.015)


def test_a_round_that_was_mostly_a_prompt_is_a_visit_but_teaches_nothing():
    policy = AdaBinGreedy(SPACE, Random(0))
    gamma = policy.predict(Context(4, 0, 0.0)).gamma
    policy.learn(round_(gamma, prefill_share=0.5))
    assert policy.score(Context(4, 0, 0.0)) == {}
    assert policy._timeline(4).block == 2


def test_zero_can_be_masked_from_exploration_at_small_batches():
    policy = AdaBinGreedy(SPACE, Random(0), Fidelity(zero_explored_from=50))
    for _ in range(300):
        gamma = policy.predict(Context(4, 1, 0.0)).gamma
        assert gamma > 0
        policy.learn(round_(gamma))
    assert 0 in policy._explorable(64)


def test_rounds_of_other_lengths_do_not_end_a_bin_but_a_deaf_engine_cannot_block_it():
    policy = AdaBinGreedy(SPACE, Random(0))
    gamma = policy.predict(Context(4, 0, 0.0)).gamma
    other = (gamma + 1) % 4
    policy.learn(round_(other))
    assert policy._timeline(4).open is not None
    for _ in range(40):
        policy.learn(round_(other))
    assert policy._timeline(4).open is None


def test_buckets_have_timelines_of_their_own_and_kept_ones_survive_new_settings():
    policy = AdaBinGreedy(SPACE, Random(0))
    for _ in range(10):
        policy.learn(round_(policy.predict(Context(4, 0, 0.0)).gamma))
    policy.adopt(Space.of(3, [8, 32]))
    assert policy._timeline(4).block > 1
    assert policy._timeline(64).block == 1


@settings(deadline=None)
@given(
    st.integers(0, 5),
    st.lists(st.integers(1, 100), max_size=80),
    st.builds(
        Fidelity,
        coin=st.sampled_from(["1/b", "1/sqrt(b)"]),
        lock=st.booleans(),
        mean_of=st.sampled_from(["loss", "goodput"]),
        zero_explored_from=st.integers(0, 100),
    ),
)
def test_plans_stay_within_the_space_and_probabilities_are_probabilities(gamma_max, batches, fidelity):
    space = Space.of(gamma_max, [1, 8, 64])
    policy = AdaBinGreedy(space, Random(0), fidelity)
    for batch in batches:
        decision = policy.plan(Context(batch, 0, 0.01))
        assert policy.plan(Context(batch, 0, 0.01)) == decision
        assert decision.hold in space.gammas
        assert all(gamma in space.gammas and steps > 0 for gamma, steps in decision.schedule)
        assert 0 < decision.choice.probability <= 1
        policy.learn(round_(decision.choice.gamma, batch=batch))
