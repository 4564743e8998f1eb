import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api.errors import ConfigurationError
from nightjar_api.gamma_table import Entry, check
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.policies.static_table import StaticTable, optimal
from nightjar_sidecar.space import Space

SPACE = Space.of(3, [8])
TABLE = [[1, 4, 3], [8, 16, 1], [32, 64, 0]]


@pytest.mark.parametrize(("requests", "gamma"), [(1, 3), (4, 3), (5, 3), (8, 1), (20, 1), (32, 0), (1000, 0)])
def test_gaps_and_the_tail_carry_the_last_length(requests, gamma):
    assert StaticTable(SPACE, TABLE).gamma(requests) == gamma


def test_it_is_looked_up_with_all_scheduled_requests_where_they_are_known():
    policy = StaticTable(SPACE, TABLE)
    assert policy.predict(Context(2, 0, 0.0)).gamma == 3
    assert policy.predict(Context(2, 0, 0.0, scheduled=40)).gamma == 0


def test_lengths_are_cut_to_the_longest_there_is():
    policy = StaticTable(SPACE, [[1, 4, 9]])
    assert policy.gamma(1) == 3
    policy.adopt(Space.of(1, [8]))
    assert policy.gamma(1) == 1


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "at least one"),
        ([[2, 4, 1]], "entry 1: low 1 is required, found 2"),
        ([[1, 4, 1], [4, 8, 0]], "entry 2: low above 4 is required, found 4"),
        ([[1, 4]], r"entry 1: \[low, high, gamma\]"),
        ([[1, 4, -1]], "entry 1"),
        ([[5, 4, 1]], "entry 1"),
        ([[1, 4, True]], "entry 1"),
    ],
)
def test_a_bad_table_is_refused_with_its_entry(entries, message):
    with pytest.raises(ConfigurationError, match=message):
        check(entries)


@given(st.floats(0.1, 0.95), st.integers(4, 200), st.integers(1, 5))
def test_the_optimal_table_holds_the_cheapest_length_everywhere(acceptance, knee, gamma_max):
    def seconds(gamma, batch):
        return 10 + 2 * gamma + 0.2 * max(0, batch * (gamma + 1) - knee)

    tokens = [sum(acceptance**i for i in range(gamma + 1)) for gamma in range(gamma_max + 1)]
    entries = optimal(seconds, tokens, 256)
    table = StaticTable(Space.of(gamma_max, [8]), entries)
    assert (entries[0].low, entries[-1].high) == (1, 256)
    assert all(type(entry) is Entry for entry in check(entries))
    for batch in (1, 7, 64, 256):
        costs = [seconds(gamma, batch) / tokens[gamma] for gamma in range(gamma_max + 1)]
        assert costs[table.gamma(batch)] == min(costs)


def test_the_published_example_gives_its_published_table():
    """Step times and acceptance of the pull request that brought the table, γ of 0, 1, 3 and 5."""
    times = {
        1: (6.52, 7.37, 8.84, 10.33),
        16: (6.90, 7.85, 9.52, 11.20),
        64: (7.77, 9.66, 13.50, 16.83),
        256: (14.49, 27.14, 41.85, 57.40),
    }
    a = (0.681, 0.391, 0.204, 0.101, 0.051)
    lengths = (0, 1, 3, 5)
    tokens = [1 + sum(a[:gamma]) for gamma in lengths]
    best = {b: lengths[min(range(4), key=lambda i, row=row: row[i] / tokens[i])] for b, row in times.items()}
    assert best == {1: 3, 16: 3, 64: 1, 256: 0}
    entries = optimal(lambda index, batch: times[max(b for b in times if b <= batch)][index], tokens, 256)
    assert [(entry.low, lengths[entry.gamma]) for entry in entries] == [(1, 3), (64, 1), (256, 0)]
