import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_sidecar.policies.drift import Drift
from nightjar_sidecar.space import Bucket

KIND = (Bucket(1, 8), 3)


def observed(drift, ratios):
    return [found for ratio in ratios if (found := drift.observe(ratio, KIND)) is not None]


def test_a_lasting_change_is_found_and_its_factor_and_witnesses_told():
    (change,) = observed(Drift(), [1.0] * 30 + [3.0] * 6)
    assert change.factor == pytest.approx(3)
    assert change.shown_by == {KIND: 6}


def test_spikes_are_no_change():
    assert observed(Drift(), ([1.0] * 9 + [8.0]) * 20) == []


def test_what_becomes_faster_is_found_too():
    assert observed(Drift(), [0.4] * 6)[0].factor == pytest.approx(0.4)


@given(st.lists(st.floats(0.8, 1.25), max_size=100))
def test_what_locations_follow_by_themselves_is_left_to_them(ratios):
    assert observed(Drift(), ratios) == []
