import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.probes import PROBE_STEPS, Candidate, Held, Probes, improvement, terms
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.space import Bucket

BUCKET = Bucket(1, 8)
HELD_ON, HELD_OFF = Held(1, 0.01), Held(0, 0.01)
HERE = Context(4, 0, 0.0)
LIKELY = Candidate(2, 0.9, 0.02, 0.1, seconds=0.015, margin=0.01, untried_seconds=5.0)


def round_(gamma, *, seconds=0.01, tokens=4, catch_up=0.0, drafting=4):
    verified = (drafting,) * gamma
    return Round(1, 0, 4, gamma, 0.0, seconds, tokens, verified, (0,) * gamma, catch_up_seconds=catch_up)


def opened(held=HELD_ON, candidate=LIKELY, context=HERE):
    probes = Probes()
    probes.consider(BUCKET, [candidate], held, context)
    return probes


@given(st.floats(0.2, 3), st.floats(0, 0.5))
def test_an_improvement_to_expect_is_between_the_certain_one_and_all(ratio, doubt):
    assert max(0.0, 1 - ratio) - 1e-9 <= improvement(ratio, doubt) < 1 + ratio * doubt


@given(st.floats(0.2, 3), st.floats(0, 0.4), st.floats(0.01, 0.1))
def test_more_doubt_promises_more(ratio, doubt, more):
    assert improvement(ratio, doubt + more) >= improvement(ratio, doubt) - 1e-12


def test_what_is_known_to_be_worse_is_not_probed_however_long_it_was_not_tried():
    worse = LIKELY._replace(ratio=1.6, doubt_time=0.02, untried_seconds=3600.0)
    assert opened(candidate=worse).open is None


def test_what_may_well_be_better_is_probed_once_it_is_worth_it():
    unsure = LIKELY._replace(ratio=1.0)
    assert opened(candidate=unsure._replace(untried_seconds=0.01)).open is None
    assert opened(candidate=unsure).open.gamma == 2


def test_the_most_profitable_is_probed():
    probes = Probes()
    probes.consider(BUCKET, [LIKELY._replace(gamma=3, ratio=0.95), LIKELY], HELD_ON, HERE)
    assert probes.open.gamma == 2


@given(
    st.floats(0.5, 2),
    st.floats(0, 0.3),
    st.floats(0.001, 1),
    st.floats(0, 100),
    st.integers(0, 50),
    st.floats(0, 20),
    st.integers(1, 256),
)
def test_no_probe_is_opened_that_may_cost_more_than_it_wins(ratio, doubt, seconds, untried, steps, switch, batch):
    candidate = Candidate(3, ratio, 0.02, doubt, seconds, 0.03, untried, 0.0)
    context = Context(batch, 0, switch if steps else 0.0, steps)
    for held in (HELD_ON, HELD_OFF):
        found = terms(candidate, held, 0.0, context)
        assert found.steps >= 1
        assert found.price >= 0
        assert (opened(held, candidate, context).open is not None) == (found.win > found.price)


def test_a_dear_return_is_probed_only_as_far_as_needed_to_see_what_is_accepted():
    news = LIKELY._replace(ratio=1.5, news=2.0)
    cheap = terms(news, HELD_OFF, 60.0, Context(64, 0, 0.1, switch_steps=1))
    dear = terms(news, HELD_OFF, 60.0, Context(64, 0, 1.3, switch_steps=10))
    assert cheap.steps == 1 + 1 + PROBE_STEPS
    assert dear.steps < 10
    assert dear.price < 0.7


def test_a_sample_is_charged_its_drafting_too():
    context = Context(64, 0, 1.3, switch_steps=10)
    free, paid = (
        terms(LIKELY._replace(ratio=1.5, news=2.0, draft_seconds=s), HELD_OFF, 60.0, context) for s in (0, 0.01)
    )
    assert free.steps == paid.steps < context.switch_steps
    assert paid.price == pytest.approx(free.price + paid.steps * 0.01)


def test_a_return_that_costs_more_than_content_could_win_is_not_tried():
    hopeless = LIKELY._replace(ratio=1.5, news=0.3)
    assert opened(HELD_OFF, hopeless, Context(64, 0, 1.3, switch_steps=10)).open is None
    assert opened(HELD_OFF, hopeless, Context(64, 0, 0.1, switch_steps=1)).open is not None


def test_a_probe_that_has_cost_more_than_it_may_win_is_given_up():
    probes = opened(candidate=LIKELY._replace(untried_seconds=0.2))
    assert probes.open is not None
    probes.learn(BUCKET, round_(2, seconds=0.5), 0.01)
    assert probes.open is None
    assert probes.tries(BUCKET, 2) == 1
    assert probes.untried_seconds(BUCKET, 2) == 0


CROWD = Context(64, 0, 0.1, switch_steps=12)
SURE_TO_LOSE = LIKELY._replace(ratio=1.2, doubt_time=0.03, untried_seconds=0.0)


@given(st.floats(1.1, 3), st.floats(0.01, 1), st.floats(1, 60), st.integers(16, 256))
def test_a_probe_ends_once_two_rounds_of_a_crowd_have_shown_that_it_loses(ratio, seconds, untried, drafting):
    """However long it would go on, and however much was hoped for: a round of a crowd may take a second."""
    hopeful = LIKELY._replace(doubt_time=0.5, seconds=seconds, untried_seconds=untried * seconds * 100)
    probes = opened(HELD_OFF, hopeful, CROWD)
    shown = SURE_TO_LOSE._replace(ratio=ratio, doubt_time=0.01, seconds=seconds)
    for left in (15, 14):
        probes.learn(BUCKET, round_(2, drafting=drafting), 0.01)
        assert probes.open.steps == left + 1
        probes.reconsider(shown)
    assert probes.open is None
    assert probes.tries(BUCKET, 2) == 1
    assert probes.untried_seconds(BUCKET, 2) == 0


def test_a_probe_goes_on_while_it_may_still_win_and_while_hardly_a_draft_was_verified():
    for candidate, drafting in [(LIKELY._replace(untried_seconds=0.0), 64), (SURE_TO_LOSE, 4)]:
        probes = opened(HELD_OFF, LIKELY, CROWD)
        for _ in range(3):
            probes.learn(BUCKET, round_(2, drafting=drafting), 0.01)
            probes.reconsider(candidate)
        assert probes.open is not None


def test_a_whole_return_is_charged_the_steps_in_which_only_some_requests_draft():
    short, long = (terms(LIKELY, HELD_OFF, 0.0, Context(64, 0, 0.1, switch_steps=steps)) for steps in (2, 12))
    assert long.steps == short.steps + 10
    assert long.price > short.price > 0.1


def test_a_probe_from_0_pays_for_its_excess_and_its_catch_up():
    probes = opened(HELD_OFF)
    probes.learn(BUCKET, round_(2, seconds=0.013, catch_up=0.005), 0.01)
    assert probes.seconds == pytest.approx(0.008)
    probes.learn(BUCKET, round_(2, seconds=0.013, tokens=8), 0.01)
    assert probes.seconds == pytest.approx(0.008)


def test_a_probe_of_another_length_does_not_pay_for_prompts_that_are_read_anyway():
    probes = opened(HELD_ON)
    probes.learn(BUCKET, round_(2, seconds=0.013, catch_up=0.005), 0.01)
    assert probes.seconds == pytest.approx(0.003)


def test_a_probe_ends_after_its_steps_or_when_the_engine_does_not_follow():
    probes = opened()
    for left in reversed(range(probes.open.steps)):
        assert probes.open.steps == left + 1
        probes.learn(BUCKET, round_(2), 0.01)
    assert probes.open is None
    probes.consider(BUCKET, [LIKELY], HELD_ON, HERE)
    for _ in range(100):
        probes.learn(BUCKET, round_(1), 0.01)
    assert probes.open is None


def test_a_probe_in_a_bucket_that_is_left_is_given_up():
    probes = opened()
    for _ in range(100):
        probes.learn(Bucket(9, 16), round_(1), 0.01)
    assert probes.open is None
    assert probes.tries(BUCKET, 2) == 0


def test_time_without_a_trial_is_counted_by_bucket_and_length():
    probes = Probes()
    for _ in range(10):
        probes.learn(BUCKET, round_(0), 0.01)
    probes.learn(BUCKET, round_(1), 0.01)
    assert probes.untried_seconds(BUCKET, 3) == pytest.approx(0.11)
    assert probes.untried_seconds(BUCKET, 0) == pytest.approx(0.01)
    assert probes.untried_seconds(Bucket(9, 16), 0) == 0
    assert probes.blind_seconds == 0
