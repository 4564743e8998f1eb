"""The default policy in a toy world whose best length is known."""

from dataclasses import replace
from itertools import groupby, pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightjar_sidecar.policies.nightjar import Nightjar, choose
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.space import Space

BUCKETS = [1, 2, 4, 8, 16, 32, 64, 128]
SPACE = Space.of(5, BUCKETS)


def share_near_best(toy, batch, chosen, slack=0.05):
    best = toy.cost(batch, toy.best(batch, SPACE.gamma_max))
    return sum(toy.cost(batch, gamma) <= best * (1 + slack) for gamma in chosen) / len(chosen)


@pytest.mark.parametrize("batch", [1, 4, 16, 64])
@pytest.mark.parametrize("seed", range(3))
def test_it_settles_near_the_best_length_within_some_dozen_rounds(toy, batch, seed):
    world = toy(seed)
    chosen = world.play(Nightjar(SPACE), batch, 600)
    assert share_near_best(world, batch, chosen[60:]) > 0.85
    assert share_near_best(world, batch, chosen[200:]) > 0.9


def test_a_small_batch_speculates_and_a_large_one_does_not(toy):
    world, policy = toy(0), Nightjar(SPACE)
    assert min(world.play(policy, 2, 300)[-20:]) > 0
    assert max(world.play(policy, 64, 300)[-20:]) == 0
    assert min(world.play(policy, 2, 60)[-20:]) > 0


def test_without_a_measurement_a_small_batch_starts_long_and_a_crowd_does_not():
    """A planner that starts again under full load must not begin with what costs most there."""
    lengths = [Nightjar(SPACE).predict(Context(batch, 0, 0.0)).gamma for batch in (1, 8, 64, 128)]
    assert lengths[:2] == [SPACE.gamma_max] * 2
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] <= 1


@pytest.mark.parametrize("batch", [48, 128])
def test_a_crowd_never_met_starts_with_what_smaller_batches_predict(toy, batch):
    """It started as a planner that knows nothing does, though each token was known to cost."""
    world, policy = toy(0, knee=1, acceptance=0.5, noise=0.01), Nightjar(Space.of(3, BUCKETS))
    for small in (1, 4, 2):
        world.play(policy, small, 100)
    assert world.best(batch, 3) == 0
    assert policy.predict(world.context(batch)).gamma == 0


def test_tokens_that_promised_more_than_came_out_count_as_they_came_out(toy):
    """Of short answers some percent are without a draft, or end before it does."""
    world, all_, fewer = toy(0), Nightjar(SPACE), Nightjar(SPACE)
    for gamma in [0, 2] * 400:
        round_ = world.run(16, gamma)
        all_.learn(round_)
        fewer.learn(replace(round_, tokens=16 + round(0.8 * (round_.tokens - 16))))
    promised, came = all_.score(world.context(16)), fewer.score(world.context(16))
    assert came[0] == promised[0]
    assert came[2] == pytest.approx(promised[2] * 2.31 / (1 + 0.8 * 1.31), rel=0.03)


@pytest.mark.parametrize("acceptance", [0.3, 0.5, 0.6])
@pytest.mark.parametrize("batch", [32, 48, 64])
def test_a_try_that_loses_in_a_crowd_never_met_ends_after_a_few_rounds_and_is_not_repeated(toy, batch, acceptance):
    """A whole return would take sixteen steps there."""
    for seed in range(6):
        world, policy = toy(seed, acceptance=0.9, catch_up_limit=64), Nightjar(Space.of(3, BUCKETS))
        assert min(world.play(policy, 4, 300)[-20:]) > 0
        world.acceptance = acceptance
        assert world.best(batch, 3) == 0
        chosen = world.play(policy, batch, 400)
        since_off = chosen[chosen.index(0) :]
        tries = [len(list(rounds)) for speculating, rounds in groupby(since_off, bool) if speculating]
        assert len(tries) <= 1
        assert max(tries, default=0) <= 8


def test_a_spike_among_the_first_rounds_of_a_length_does_not_condemn_it(toy):
    world, policy = toy(0, noise=0.01), Nightjar(SPACE)
    world.play(policy, 4, 300)
    for gamma, factor in [(5, 1), (5, 1), (5, 1), (0, 1), (0, 1), (0, 6)]:
        round_ = world.run(64, gamma)
        policy.learn(replace(round_, forward_seconds=factor * world.times(64, gamma)[1]))
    assert policy.score(world.context(64))[0] == pytest.approx(world.cost(64, 0), rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_it_follows_a_change_of_acceptance_both_ways(toy, seed):
    world, policy = toy(seed, acceptance=0.9), Nightjar(SPACE)
    for acceptance in (0.9, 0.15, 0.9):
        world.acceptance = acceptance
        chosen = world.play(policy, 8, 800)
        assert share_near_best(world, 8, chosen[-200:]) > 0.85


def test_speculation_comes_back_after_a_spell_in_which_it_was_useless(toy):
    """At 0 nothing is seen, so only probes can tell that drafts are accepted again."""
    world, policy = toy(0, acceptance=0.0), Nightjar(SPACE)
    assert world.play(policy, 4, 1500)[-300:].count(0) > 280
    world.acceptance = 0.9
    chosen = world.play(policy, 4, 6000)
    assert min(chosen[-100:]) > 0


@pytest.mark.parametrize("batch", [2, 8, 32, 64])
def test_probes_cost_little_of_the_time_once_a_bucket_is_known(toy, batch):
    world, policy = toy(1), Nightjar(SPACE)
    world.play(policy, batch, 300)
    before, start = policy.probe_seconds, world.now_ns
    world.play(policy, batch, 4000)
    assert policy.probe_seconds - before < 0.02 * (world.now_ns - start) * 1e-9


def test_it_loses_little_to_always_choosing_the_best(toy):
    batches = [2] * 400 + [16] * 400 + [64] * 200 + [8] * 400
    world, policy = toy(2), Nightjar(SPACE)
    for batch in batches:
        world.play(policy, batch, 1)
    oracle = toy(2)
    for batch in batches:
        oracle.run(batch, oracle.best(batch, 5))
    lost = (world.now_ns / world.tokens) / (oracle.now_ns / oracle.tokens)
    assert lost < 1.06


def flips(world, policy):
    """Changes between off and on over 3000 rounds of a batch that wanders around break-even."""
    batch, chosen = 32, []
    for _ in range(3000):
        if world.rng.random() < 0.3:
            batch = min(48, max(20, batch + world.rng.choice((-1, 1))))
        chosen += world.play(policy, batch, 1)
    return sum((a > 0) != (b > 0) for a, b in pairwise(chosen[500:]))


def test_a_batch_that_wanders_around_break_even_flips_less_the_dearer_a_return_is(toy):
    free, dear = (
        sum(flips(toy(seed, catch_up_per_token=cost), Nightjar(SPACE)) for seed in range(3)) for cost in (0.0, 2e-4)
    )
    assert dear < 0.6 * free
    assert dear / 3 < 40


def test_a_spike_in_a_first_probe_does_not_condemn_a_length(toy):
    world, policy = toy(0), Nightjar(SPACE)
    world.play(policy, 4, 100)
    held = policy.predict(world.context(24)).gamma
    spiked = []
    for _ in range(3000):
        gamma = policy.predict(world.context(24)).gamma
        round_ = world.run(24, gamma)
        if gamma != held and len(spiked) < 2 and set(spiked) <= {gamma}:
            spiked.append(gamma)
            round_ = replace(round_, forward_seconds=10 * round_.forward_seconds)
        policy.learn(round_)
    assert len(spiked) == 2
    assert policy.score(world.context(24))[spiked[0]] == pytest.approx(world.cost(24, spiked[0]), rel=0.1)


def test_the_cost_of_reading_prompts_counts_against_speculation(toy):
    world, policy = toy(0), Nightjar(SPACE)
    world.play(policy, 32, 300)
    free = policy.score(Context(32, 0, 0.0))
    assert policy.score(Context(32, 0, 0.0, 0, 1e-3)) == free  # no prompts were seen
    policy._prompts.observe(world.now_ns, 64_000, 0)
    dear = policy.score(Context(32, 0, 0.0, 0, 1e-3))
    assert dear[0] == free[0]
    assert all(dear[gamma] > free[gamma] for gamma in range(1, 6))


def with_prompts(round_, tokens, recomputed):
    """The round with so many tokens of prompts in its pass, in every second one."""
    if round_.step % 2:
        return round_
    share = tokens / (tokens + round_.batch * (1 + round_.gamma))
    longer = round_.forward_seconds + tokens * 0.2e-3
    prompts = {"prefill_tokens": tokens, "prefill_share": share, "prompt_tokens": tokens}
    return replace(round_, forward_seconds=longer, recomputed_tokens=recomputed, **prompts)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_sent_back_is_read_again_in_every_round_so_rounds_that_give_more_are_worth_more(toy, seed):
    """As many tokens of new prompts come with what is written, so they favour no length."""
    chosen = {}
    for recomputed in (0, 80):
        world, policy = toy(seed), Nightjar(SPACE)
        assert world.best(48, SPACE.gamma_max) == 0
        assert world.cost(48, 1) + 8e-3 / 1.75 < 0.9 * (world.cost(48, 0) + 8e-3)
        lengths = chosen[recomputed] = []
        for _ in range(800):
            lengths.append(policy.predict(world.context(48)).gamma)
            policy.learn(with_prompts(world.run(48, lengths[-1]), 80, recomputed))
    assert chosen[0][-100:].count(0) > 85
    assert chosen[80][-100:].count(0) < 15


def test_a_draft_reads_what_was_sent_back_once_for_all_that_a_round_gives(toy):
    world, policy = toy(0), Nightjar(SPACE)
    world.play(policy, 32, 300)
    free = policy.score(Context(32, 0, 0.0, 0, 1e-3))
    policy._prompts.observe(world.now_ns, 64_000, 32, recomputed_tokens=64_000)
    dear = policy.score(Context(32, 0, 0.0, 0, 1e-3))
    more = [dear[gamma] - free[gamma] for gamma in range(6)]
    assert more[0] > 0
    assert more[1:] == sorted(more[1:], reverse=True)


def test_asking_for_a_plan_again_changes_nothing(toy):
    world, policy = toy(0), Nightjar(SPACE)
    for _ in range(200):
        first = policy.plan(world.context(8))
        assert policy.plan(world.context(8)) == first
        policy.learn(world.run(8, first.choice.gamma))


def test_new_buckets_and_lengths_keep_what_was_learnt(toy):
    world, policy = toy(0), Nightjar(SPACE)
    world.play(policy, 4, 400)
    world.play(policy, 64, 200)
    narrow = Space.of(3, [4, 16, 64])
    policy.adopt(narrow)
    assert policy.plan(world.context(4)).hold == world.best(4, 3)
    assert policy.plan(world.context(64)).hold == 0
    assert max(world.play(policy, 4, 50)) <= 3


def test_hysteresis_keeps_noise_from_switching():
    assert choose({0: 1.0, 1: 0.98}, held=0) == 0
    assert choose({0: 1.0, 1: 0.96}, held=0) == 1
    assert choose({0: 0.98, 1: 1.0}, held=1) == 1
    assert choose({1: 1.0, 2: 0.98}, held=1) == 2


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    gamma_max=st.integers(0, 4),
    batches=st.lists(st.integers(1, 300), min_size=1, max_size=60),
    obey=st.booleans(),
)
def test_plans_stay_within_the_space_whatever_happens(toy, gamma_max, batches, obey):
    space = Space.of(gamma_max, [1, 4, 16])
    world, policy = toy(0), Nightjar(space)
    for batch in batches:
        decision = policy.plan(world.context(batch))
        assert decision.hold in space.gammas
        assert all(gamma in space.gammas and 0 < steps <= 10 for gamma, steps in decision.schedule)
        assert decision.choice.probability == 1
        policy.learn(world.run(batch, decision.choice.gamma if obey else gamma_max))
