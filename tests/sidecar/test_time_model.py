import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies import least_squares
from nightjar_sidecar.policies.forward_curve import ForwardCurve, Pass
from nightjar_sidecar.policies.robust import location
from nightjar_sidecar.policies.time_model import TimeModel
from nightjar_sidecar.space import Space

SPACE = Space.of(3, [1, 2, 4, 8, 16, 32, 64])
SECOND = 1_000_000_000


def seconds(batch, gamma):
    return 1e-3 * gamma * (1 + 0.02 * batch), 10e-3 + 1e-4 * batch * (gamma + 1)


def learn(model, batch, gamma, rounds=10, *, factor=1.0, time_ns=0, host=None):
    draft, forward = seconds(batch, gamma)
    for _ in range(rounds):
        model.learn(
            SPACE.bucket(batch),
            Round(1, time_ns, batch, gamma, factor * draft, factor * forward, batch, host_seconds=host),
        )


def test_nothing_is_predicted_before_anything_was_seen():
    assert TimeModel().seconds(SPACE.bucket(4), 1, 4) is None


def test_a_seen_cell_is_predicted_as_it_was_seen():
    model = TimeModel()
    learn(model, 4, 3)
    assert model.seconds(SPACE.bucket(4), 3, 4) == pytest.approx(sum(seconds(4, 3)))


def test_unseen_buckets_and_lengths_are_predicted_from_a_few_seen_ones():
    model = TimeModel()
    for batch, gamma in [(1, 3), (1, 0), (8, 3), (32, 1)]:
        learn(model, batch, gamma)
    for batch, gamma in [(16, 0), (16, 3), (4, 2), (64, 0)]:
        assert model.seconds(SPACE.bucket(batch), gamma, batch) == pytest.approx(sum(seconds(batch, gamma)), rel=0.12)


def test_long_drafts_of_small_batches_predict_plain_steps_of_large_ones():
    """A trap met in simulation: with one length everywhere, requests and tokens cannot be told apart."""
    model = TimeModel()
    for batch in (1, 2, 4, 8, 16, 32, 64):
        learn(model, batch, 3)
    assert model.seconds(SPACE.bucket(64), 0, 64) == pytest.approx(seconds(64, 0)[1], rel=0.15)


def test_a_few_spikes_move_nothing():
    model = TimeModel()
    learn(model, 4, 1, 16)
    learn(model, 4, 1, 5, factor=20)
    assert model.seconds(SPACE.bucket(4), 1, 4) == pytest.approx(sum(seconds(4, 1)))


def test_a_lasting_change_is_followed():
    model = TimeModel()
    learn(model, 4, 1, 50)
    learn(model, 4, 1, 21, factor=2)
    assert model.seconds(SPACE.bucket(4), 1, 4) == pytest.approx(2 * sum(seconds(4, 1)))


def test_when_all_steps_get_slower_lengths_measured_before_are_believed_slower_too():
    model = TimeModel()
    learn(model, 4, 3, 30)
    learn(model, 4, 0, 4)
    learn(model, 4, 3, 30, factor=1.5, time_ns=SECOND)
    assert model.seconds(SPACE.bucket(4), 0, 4) == pytest.approx(1.5 * seconds(4, 0)[1], rel=0.02)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_what_was_measured_after_all_steps_changed_is_not_believed_changed_again(factor):
    """In a crowd it was believed so slow without drafts that they were kept for half a minute."""
    model = TimeModel()
    learn(model, 64, 2, 9)
    learn(model, 64, 0, 5, factor=factor, time_ns=SECOND)
    learn(model, 64, 2, 9, factor=factor, time_ns=2 * SECOND)
    assert model.seconds(SPACE.bucket(64), 2, 64) == pytest.approx(factor * sum(seconds(64, 2)), rel=0.02)
    assert model.seconds(SPACE.bucket(64), 0, 64) == pytest.approx(factor * seconds(64, 0)[1], rel=0.02)


def test_passes_full_of_prompts_are_believed_changed_only_if_they_came_before_the_change():
    model = TimeModel()
    learn(model, 4, 3, 30)
    before, after = 10e-3 + 1e-4 * 64, 10e-3 + 1e-4 * 256
    for _ in range(4):
        model.learn_passes(Round(1, 0, 32, 0, 0.0, before, 32, prefill_tokens=32, prefill_share=0.5))
        model.learn_passes(Round(1, SECOND, 32, 0, 0.0, 2 * after, 32, prefill_tokens=224, prefill_share=0.9))
    learn(model, 4, 3, 20, factor=2, time_ns=2 * SECOND)
    assert model.seconds(SPACE.bucket(64), 0, 64) == pytest.approx(2 * before, rel=0.05)
    assert model.seconds(SPACE.bucket(64), 3, 64) == pytest.approx(2 * sum(seconds(64, 3)), rel=0.1)


def test_a_cell_seen_again_after_long_is_believed_anew():
    model = TimeModel()
    learn(model, 4, 0, 30)
    learn(model, 4, 0, 6, factor=3, time_ns=600 * SECOND)
    assert model.seconds(SPACE.bucket(4), 0, 4) == pytest.approx(3 * seconds(4, 0)[1], rel=0.35)
    assert model.count(SPACE.bucket(4), 0) == 8


def test_the_hosts_time_is_added_to_every_length():
    model = TimeModel()
    learn(model, 4, 0, host=2e-3)
    learn(model, 4, 1)
    for gamma in (0, 1):
        assert model.seconds(SPACE.bucket(4), gamma, 4) == pytest.approx(sum(seconds(4, gamma)) + 2e-3)


def test_a_few_prompt_tokens_in_a_round_are_corrected_for():
    model = TimeModel()
    for batch in (8, 16, 32, 64):
        learn(model, batch, 0)
    for _ in range(10):
        forward = 10e-3 + 1e-4 * (32 + 16)
        model.learn(SPACE.bucket(32), Round(1, 0, 32, 0, 0.0, forward, 32, prefill_tokens=16, prefill_share=1 / 3))
    assert model.seconds(SPACE.bucket(32), 0, 32) == pytest.approx(seconds(32, 0)[1], rel=0.04)


def test_a_prediction_has_ground_once_measurements_tell_how_time_grows_with_tokens_and_drafts():
    model = TimeModel()
    learn(model, 4, 0)
    assert not model.grounded(0)
    learn(model, 32, 0)
    assert model.grounded(0)
    assert not model.grounded(1)
    learn(model, 4, 3)
    assert model.grounded(1)


def test_the_farther_a_prediction_is_from_all_measurements_the_more_it_is_in_doubt():
    model = TimeModel()
    for batch in (1, 2, 4):
        for gamma in (0, 3):
            learn(model, batch, gamma)
    near, far, farther = (model.doubt(SPACE.bucket(batch), 0, 0) for batch in (8, 32, 64))
    assert near < far < farther
    assert model.doubt(SPACE.bucket(64), 0, 0) < model.doubt(SPACE.bucket(64), 3, 0)


def test_rounds_that_are_not_believed_yet_end_no_doubt():
    """Two rounds of a length were not acted upon, and kept it from being tried for a minute."""
    model = TimeModel()
    for batch in (8, 32):
        for gamma in (0, 1, 3):
            learn(model, batch, gamma)
    learn(model, 16, 0)
    learn(model, 16, 1, rounds=2)
    before = model.doubt(SPACE.bucket(16), 1, 0)
    assert before >= 0.03
    learn(model, 16, 1, rounds=1)
    assert model.doubt(SPACE.bucket(16), 1, 0) < 0.5 * before


def test_a_spike_in_one_of_two_rounds_is_not_believed_of_other_lengths():
    """One of a crowd's first two rounds did; for a minute a draft less seemed to cost a third more."""
    model = TimeModel()
    for batch in (8, 16, 32):
        for gamma in (0, 1, 3):
            learn(model, batch, gamma)
    learn(model, 64, 1, rounds=1)
    learn(model, 64, 1, rounds=1, factor=6)
    learn(model, 64, 3)
    assert model.seconds(SPACE.bucket(64), 1, 64) == pytest.approx(sum(seconds(64, 1)), rel=0.05)


def costly(batch, gamma):
    """Draft and forward seconds where each request's long context is read as well."""
    draft, forward = seconds(batch, gamma)
    return draft, forward + 1e-4 * batch


def learn_costly(model, batch, gamma):
    draft, forward = costly(batch, gamma)
    for _ in range(10):
        model.learn(SPACE.bucket(batch), Round(1, 0, batch, gamma, draft, forward, batch))


def test_what_requests_cost_beside_their_tokens_is_known_in_buckets_never_met():
    """A crowd stopped drafting: a pass of as many tokens of half the requests had taken less."""
    model = TimeModel()
    for batch, gamma in [(2, 0), (2, 1), (4, 0), (4, 3), (8, 3), (16, 1), (16, 3), (32, 0), (32, 1)]:
        learn_costly(model, batch, gamma)
    for gamma in (0, 1):
        assert model.seconds(SPACE.bucket(64), gamma, 64) == pytest.approx(sum(costly(64, gamma)), rel=0.05)
    ratio = costly(64, 0)[1] / sum(costly(64, 1))
    predicted = model.seconds(SPACE.bucket(64), 0, 64) / model.seconds(SPACE.bucket(64), 1, 64)
    assert predicted == pytest.approx(ratio, rel=0.04)


def test_noise_between_small_batches_says_nothing_of_what_a_crowd_costs():
    """Two requests less and two percent more is no cost of a percent a request."""
    passes = [Pass(8, 4, 10.2e-3, 8), Pass(8, 2, 10.0e-3, 8), Pass(200, 200, 30e-3, 8)]
    assert ForwardCurve(passes)(200, 200) == pytest.approx(30e-3, rel=0.02)
    assert ForwardCurve(passes)(200, 100) == pytest.approx(30e-3, rel=0.1)


def test_drafts_of_one_batch_say_nothing_of_how_drafting_grows_with_requests():
    """A slope made of noise told a crowd that drafting never pays, and so it was never tried."""
    model = TimeModel()
    for batch in (8, 16, 32, 64):
        learn(model, batch, 0)
    draft, forward = seconds(1, 3)
    model.learn(SPACE.bucket(1), Round(1, 0, 1, 3, draft, forward, 1))
    assert model.draft_seconds(3, 64) == pytest.approx(draft, rel=0.01)
    assert model.seconds(SPACE.bucket(64), 3, 64) < 1.05 * sum(seconds(64, 3))
    for batch in (1, 16):
        learn(model, batch, 3)
    assert model.draft_seconds(3, 64) == pytest.approx(seconds(64, 3)[0], rel=0.1)


def test_no_draft_takes_no_time_and_is_no_ground():
    model = TimeModel()
    for batch in (4, 32):
        learn(model, batch, 0)
    assert model.draft_seconds(3, 4) == 0
    assert not model.grounded(3)


def test_other_buckets_can_be_forgotten():
    model = TimeModel()
    learn(model, 4, 1)
    learn(model, 8, 1)
    model.keep({SPACE.bucket(8)})
    assert not model.count(SPACE.bucket(4), 1)
    assert model.count(SPACE.bucket(8), 1)


times = st.floats(1e-5, 1.0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 3), times, times), min_size=1, max_size=60))
def test_predictions_are_positive_and_finite_whatever_is_measured(rounds):
    model = TimeModel()
    for batch, gamma, draft, forward in rounds:
        model.learn(SPACE.bucket(batch), Round(1, 0, batch, gamma, draft if gamma else 0.0, forward, batch))
    for bucket in SPACE.buckets:
        for gamma in SPACE.gammas:
            assert 0 < model.seconds(bucket, gamma, bucket.high) < 1e9


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.1, 1), times), min_size=1, max_size=30))
def test_the_forward_curve_is_positive_everywhere(points):
    curve = ForwardCurve([Pass(tokens, share * tokens, seconds, 1) for tokens, share, seconds in points])
    assert all(curve(tokens, requests) > 0 for tokens in (1, 7, 100, 20_000) for requests in (1, tokens))


def test_the_forward_curve_keeps_a_jump():
    points = [(tokens, 0.010 if tokens <= 64 else 0.030) for tokens in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
    curve = ForwardCurve([Pass(tokens, tokens, seconds, 1) for tokens, seconds in points])
    assert curve(60, 60) == pytest.approx(0.010, rel=0.1)
    assert curve(130, 130) == pytest.approx(0.030, rel=0.1)


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=2, max_size=2))
def test_non_negative_coefficients_are_found(truth):
    points = [((1.0, float(x)), truth[0] + truth[1] * x, 1.0) for x in range(1, 8)]
    assert least_squares.fit(points, 2) == pytest.approx(truth, abs=0.02, rel=0.02)


def test_a_coefficient_that_would_be_negative_is_left_out():
    points = [((1.0, float(x)), 10.0 - x, 1.0) for x in range(1, 8)]
    start, slope = least_squares.fit(points, 2)
    assert slope == 0
    assert start == pytest.approx(6, rel=0.01)


@settings(deadline=None)
@given(st.lists(st.floats(1, 2), min_size=8, max_size=8), st.lists(st.floats(0, 1e6), max_size=2))
def test_a_location_stays_within_the_middle_of_the_values(values, outliers):
    assert 1 <= location([*values, *[x + 3 for x in outliers]]) <= 2


@given(st.lists(st.floats(1, 2), min_size=2, max_size=2), st.floats(0, 1e6))
def test_a_single_outlier_does_not_move_a_location_of_three(values, outlier):
    assert min(values) <= location([*values, outlier]) <= max(values)


def test_a_slower_draft_seen_in_one_bucket_is_believed_in_all():
    model = TimeModel()
    for batch in (4, 16):
        learn(model, batch, 3)
        learn(model, batch, 0)
    draft, forward = seconds(4, 3)
    for _ in range(12):
        model.learn(SPACE.bucket(4), Round(1, 0, 4, 3, 3 * draft, forward, 4))
    draft, forward = seconds(16, 3)
    assert model.seconds(SPACE.bucket(16), 3, 16) == pytest.approx(3 * draft + forward, rel=0.15)
    assert model.seconds(SPACE.bucket(16), 0, 16) == pytest.approx(seconds(16, 0)[1], rel=0.02)


def test_a_slow_draft_says_nothing_of_steps_without_one():
    model = TimeModel()
    for batch in (4, 8, 32):
        learn(model, batch, 3)
        learn(model, batch, 0)
    draft, forward = seconds(16, 3)
    for _ in range(10):
        model.learn(SPACE.bucket(16), Round(1, 0, 16, 3, 2 * draft, forward, 16))
    assert model.seconds(SPACE.bucket(16), 0, 16) == pytest.approx(seconds(16, 0)[1], rel=0.1)


def test_rounds_with_partly_caught_up_requests_teach_the_passes():
    """After a return at a large batch whole rounds come late; the passes on the way tell what they will take."""
    model = TimeModel()
    learn(model, 1, 3)
    learn(model, 32, 0)
    before = model.doubt(SPACE.bucket(32), 3, 0)
    for drafting in (8, 16, 24) * 4:
        tokens = 32 + 3 * drafting
        draft = 3 * 1e-3 * (1 + 0.02 * drafting)
        forward = 10e-3 + 1e-4 * tokens
        model.learn_passes(Round(1, 0, 32, 3, draft, forward, tokens, verified=(drafting,) * 3))
    assert model.doubt(SPACE.bucket(32), 3, 0) < before
    assert model.seconds(SPACE.bucket(32), 3, 32) == pytest.approx(sum(seconds(32, 3)), rel=0.1)


def test_rounds_full_of_prompts_teach_the_passes_of_a_load_that_has_no_others():
    model = TimeModel()
    learn(model, 1, 0)
    for prompts in (64, 128, 256):
        for _ in range(4):
            forward = 10e-3 + 1e-4 * (32 + prompts)
            model.learn_passes(Round(1, 0, 32, 0, 0.0, forward, 32, prefill_tokens=prompts, prefill_share=0.8))
    assert model.grounded(0)
    assert model.seconds(SPACE.bucket(64), 0, 64) == pytest.approx(seconds(64, 0)[1], rel=0.1)
