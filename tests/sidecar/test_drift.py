import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_sidecar.policies.drift import Drift
from nightjar_sidecar.space import Bucket

KIND = (Bucket(1, 8), 3)


def observed(drift, ratios):
    """Each round is compared with what was known when the one before it ended; they end at 1, 2, … ns."""
    return [found for now, ratio in enumerate(ratios) if (found := drift.observe(ratio, KIND, now)) is not None]


def test_a_lasting_change_is_found_and_its_factor_and_witnesses_told():
    (change,) = observed(Drift(), [1.0] * 30 + [3.0] * 6)
    assert change.factor == pytest.approx(3)
    assert change.shown_by == {KIND: 6}


def test_a_change_came_after_the_last_round_that_does_not_show_it():
    (change,) = observed(Drift(), [1.0] * 30 + [3.0] * 6)
    assert change.after_ns == 30


def test_of_kinds_that_show_a_change_the_one_seen_last_before_it_tells_when_it_came():
    drift, other = Drift(), (Bucket(9, 16), 0)
    for _ in range(3):
        assert drift.observe(2.0, KIND, 5) is None
    found = [drift.observe(2.0, other, 7) for _ in range(3)]
    assert found[-1].after_ns == 7


def test_spikes_are_no_change():
    assert observed(Drift(), ([1.0] * 9 + [8.0]) * 20) == []


def test_what_becomes_faster_is_found_too():
    assert observed(Drift(), [0.4] * 6)[0].factor == pytest.approx(0.4)


@given(st.lists(st.floats(0.8, 1.25), max_size=100))
def test_what_locations_follow_by_themselves_is_left_to_them(ratios):
    assert observed(Drift(), ratios) == []
