import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.turnover import Turnover


def round_(tokens, batch=50, gamma=2):
    return Round(1, 0, batch, gamma, 1e-3, 10e-3, tokens)


def test_until_rounds_tell_more_all_that_is_promised_comes_out():
    turnover = Turnover()
    assert turnover.share == 1
    turnover.observe(round_(50), 2.0)
    assert turnover.share > 0.95


def test_what_requests_without_a_draft_and_those_that_end_miss_is_learnt():
    turnover = Turnover()
    for _ in range(1000):
        # Of 50 requests five have just come, and each other gives 0.8 tokens beside its own.
        turnover.observe(round_(50 + 36), 1.8)
    assert turnover.share == pytest.approx(0.9, abs=0.01)


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 6), st.floats(1, 7)), max_size=80))
def test_a_share_stays_one_whatever_happens(rounds):
    turnover = Turnover()
    for batch, more, promised in rounds:
        turnover.observe(round_(batch * (1 + more), batch), promised)
    assert 0 <= turnover.share <= 1
