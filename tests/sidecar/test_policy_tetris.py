from hypothesis import given
from hypothesis import strategies as st

from nightjar_sidecar.policies.tetris import select

PROBABILITIES = st.lists(st.lists(st.floats(0.01, 1), max_size=5), max_size=8)


def scores(rows):
    """(survival, request) of every draft."""
    found = []
    for index, row in enumerate(rows):
        survival = 1.0
        for probability in row:
            survival *= probability
            found.append((survival, index))
    return found


@given(PROBABILITIES, st.integers(0, 20))
def test_the_capacity_is_used_up_by_the_drafts_most_likely_to_be_reached(rows, capacity):
    chosen = select(rows, capacity)
    found = scores(rows)
    assert sum(chosen) == min(capacity, len(found))
    assert all(0 <= count <= len(row) for count, row in zip(chosen, rows, strict=True))
    best = sum(sorted((score for score, _ in found), reverse=True)[:capacity])
    gained = sum(sum(s for s, _ in scores([row[:count]])) for row, count in zip(rows, chosen, strict=True))
    assert abs(gained - best) < 1e-9


def test_a_sure_request_gets_the_room_of_a_doubtful_one():
    assert select([[0.9, 0.9, 0.9], [0.3, 0.3, 0.3]], 3) == [3, 0]
    assert select([[0.9, 0.2], [0.8, 0.8]], 3) == [1, 2]
