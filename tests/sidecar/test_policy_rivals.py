"""Rival policies: what each is known for, and what all of them keep."""

import math
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.banditspec import BanditSpecExp3, BanditSpecUcb
from nightjar_sidecar.policies.dsd import Dsd
from nightjar_sidecar.policies.linear import LinearTs, LinUcb
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.space import Space

SPACE = Space.of(3, [4, 16, 64])


class Profile:
    """The toy's own times."""

    def __init__(self, world):
        self.world = world

    def draft(self, gamma, batch):
        return self.world.times(batch, gamma)[0]

    def forward(self, gamma, batch):
        return self.world.times(batch, gamma)[1]


def policies(world):
    return {
        "dsd": Dsd(SPACE, Profile(world)),
        "ucb": BanditSpecUcb(SPACE),
        "exp3": BanditSpecExp3(SPACE, Random(0)),
        "linucb": LinUcb(SPACE),
        "lints": LinearTs(SPACE, Random(0)),
    }


NAMES = ("dsd", "ucb", "exp3", "linucb", "lints")


def round_(gamma, *, seconds=0.01, tokens=4, batch=4, verified=(), accepted=(), share=0.0):
    return Round(1, 0, batch, gamma, 0.0, seconds, tokens, verified, accepted, prefill_share=share)


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batches=st.lists(st.integers(1, 200), min_size=1, max_size=40),
    obey=st.booleans(),
    narrow=st.integers(0, 3),
)
def test_lengths_stay_in_the_space_and_asking_again_changes_nothing(toy, name, batches, obey, narrow):
    world = toy(0)
    policy = policies(world)[name]
    most = 3
    for number, batch in enumerate(batches):
        if number == len(batches) // 2:
            most = narrow
            policy.adopt(Space.of(most, [8, 32]))
        decision = policy.plan(world.context(batch))
        assert policy.plan(world.context(batch)) == decision
        assert 0 <= decision.choice.gamma <= most
        assert 0 < decision.choice.probability <= 1
        policy.learn(world.run(batch, decision.choice.gamma if obey else 3))
        assert all(0 < seconds < math.inf for seconds in policy.score(world.context(batch)).values())


@pytest.mark.parametrize("name", NAMES)
def test_the_same_rounds_lead_to_the_same_decisions(toy, name):
    played = []
    for _ in range(2):
        world = toy(3)
        played.append(world.play(policies(world)[name], 8, 200))
    assert played[0] == played[1]


@pytest.mark.parametrize(("name", "rounds"), [("dsd", 50), ("ucb", 3000), ("linucb", 500), ("lints", 2000)])
def test_they_find_the_best_length_of_a_steady_load(toy, name, rounds):
    world = toy(1, acceptance=0.9, noise=0.01)
    chosen = world.play(policies(world)[name], 4, rounds)
    best = world.best(4, 3)
    assert chosen[-rounds // 4 :].count(best) > 0.5 * rounds / 4


def test_dsd_needs_a_tenth_more_goodput_to_speculate(toy):
    class Even:
        def __init__(self, gain):
            self.gain = gain

        def draft(self, gamma, batch):
            return 0.0

        def forward(self, gamma, batch):
            return 0.01 if gamma == 0 else 0.01 * (1 - 0.7 ** (gamma + 1)) / 0.3 / self.gain

    assert Dsd(SPACE, Even(1.09)).predict(Context(4, 0, 0.0)).gamma == 0
    assert Dsd(SPACE, Even(1.11)).predict(Context(4, 0, 0.0)).gamma > 0


def test_dsd_begins_with_seven_tenths_and_replaces_a_low_alpha():
    policy = Dsd(SPACE, Profile(None))
    assert policy.alpha == 0.7
    policy.learn(round_(2, verified=(4, 4), accepted=(3, 1)))
    assert policy.alpha == 0.5
    policy.learn(round_(2, verified=(40, 40), accepted=(1, 0)))
    assert policy.alpha == 0.65


def test_dsd_learns_nothing_while_it_is_off():
    policy = Dsd(SPACE, Profile(None))
    policy.learn(round_(2, verified=(4, 4), accepted=(2, 1)))
    before = policy.alpha
    for _ in range(100):
        policy.learn(round_(0))
    assert policy.alpha == before


def test_ucb_pulls_every_length_once_before_any_twice():
    policy, pulled = BanditSpecUcb(SPACE), []
    for _ in range(4):
        gamma = policy.predict(Context(4, 0, 0.0)).gamma
        pulled.append(gamma)
        policy.learn(round_(gamma))
    assert sorted(pulled) == [0, 1, 2, 3]


def test_exp3_says_the_probability_it_drew_with_and_never_gives_an_arm_up():
    policy = BanditSpecExp3(SPACE, Random(0))
    for _ in range(500):
        choice = policy.predict(Context(4, 0, 0.0))
        assert choice.probability == pytest.approx(policy.probabilities()[choice.gamma])
        policy.learn(round_(choice.gamma, seconds=0.01 * (1 + choice.gamma)))
    chances = policy.probabilities()
    assert sum(chances) == pytest.approx(1)
    assert min(chances) >= 0.02 / 4
    assert max(range(4), key=chances.__getitem__) == 0


def test_exp3_draws_once_per_round():
    policy = BanditSpecExp3(SPACE, Random(0))
    assert len({policy.predict(Context(4, 0, 0.0)).gamma for _ in range(50)}) == 1


@pytest.mark.parametrize("policy", [LinUcb(SPACE), LinearTs(SPACE, Random(0))])
def test_linear_policies_tell_small_batches_from_large_ones(toy, policy):
    world = toy(0, acceptance=0.9)
    for _ in range(12):
        world.play(policy, 4, 100)
        world.play(policy, 64, 100)
    score = {batch: policy.score(world.context(batch)) for batch in (4, 64)}
    assert min(score[4], key=score[4].get) > 0
    assert min(score[64], key=score[64].get) == 0


@pytest.mark.parametrize("name", ["ucb", "exp3", "linucb", "lints"])
def test_rounds_full_of_prompts_say_nothing(toy, name):
    policy = policies(toy(0))[name]
    policy.learn(round_(1, share=0.9))
    assert not policy.score(Context(4, 0, 0.0))
