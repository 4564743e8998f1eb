import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_sidecar.policies.dwell import Dwell
from nightjar_sidecar.space import Bucket

SMALL, LARGE = Bucket(1, 8), Bucket(9, 64)
SECOND = 1_000_000_000


def spells(dwell, bucket, seconds, count, now=0):
    for _ in range(count):
        dwell.observe(bucket, now, speculating=True)
        now += round(seconds * SECOND)
        dwell.observe(bucket, now, speculating=False)
        now += SECOND
    return now


def test_short_spells_make_returns_dear_in_their_bucket_only():
    dwell = Dwell()
    before = dwell.seconds(SMALL)
    spells(dwell, LARGE, 0.1, 5)
    assert dwell.seconds(LARGE) < 0.3 * before
    assert dwell.seconds(SMALL) == before


def test_long_spells_make_returns_cheap():
    dwell = Dwell()
    spells(dwell, SMALL, 20.0, 6)
    assert dwell.seconds(SMALL) == pytest.approx(20, rel=0.1)


def test_a_spell_counts_where_it_began():
    dwell = Dwell()
    dwell.observe(SMALL, 0, speculating=True)
    dwell.observe(LARGE, 30 * SECOND, speculating=True)
    dwell.observe(LARGE, 40 * SECOND, speculating=False)
    assert dwell.seconds(SMALL) > 10 > dwell.seconds(LARGE)


@given(st.lists(st.tuples(st.sampled_from([SMALL, LARGE]), st.integers(0, 10**12), st.booleans()), max_size=50))
def test_an_expected_dwell_is_positive_and_bounded_whatever_happens(rounds):
    dwell, now = Dwell(), 0
    for bucket, gap, speculating in rounds:
        now += gap
        dwell.observe(bucket, now, speculating=speculating)
    assert all(0 < dwell.seconds(bucket) <= 60 for bucket in (SMALL, LARGE))
