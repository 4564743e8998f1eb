import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_benchmarks.compare import suites
from nightjar_benchmarks.simulator import arrivals, oracle
from nightjar_benchmarks.simulator.arrivals import Piece
from nightjar_benchmarks.simulator.lengths import ALPACA, DATASETS, DEMO, SHAREGPT
from nightjar_benchmarks.simulator.machine import Machine
from nightjar_benchmarks.simulator.state import MAX_BATCH, MAX_PHASES

NO_DRAFT = np.zeros((MAX_PHASES, MAX_BATCH + 1), np.int64)


@given(st.lists(st.tuples(st.floats(0.1, 100), st.integers(1, 300)), min_size=1, max_size=6), st.integers(0, 99))
def test_a_load_gives_all_its_requests_in_order_and_again_for_its_seed(pieces, seed):
    load = [Piece(*piece) for piece in pieces]
    one, other = (list(arrivals.poisson(load, ALPACA, seed)) for _ in range(2))
    times = np.concatenate([chunk.arrival for chunk in one])
    assert len(times) == sum(piece.requests for piece in load)
    assert (np.diff(times) >= 0).all()
    assert all((a.prompt == b.prompt).all() and (a.arrival == b.arrival).all() for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize(
    "load",
    [
        arrivals.burst_spike(2, 20, 1000),
        arrivals.high_low_oscillation(2, 20, 1000, 5),
        arrivals.azure_like(10, 1000, 0),
        arrivals.steps([1, 2], 500),
    ],
)
def test_shapes_have_about_the_requests_that_were_asked_for(load):
    assert sum(piece.requests for piece in load) == pytest.approx(1000, rel=0.2)


@pytest.mark.parametrize(("dataset", "prompt", "output"), [(ALPACA, 19.31, 58.45), (SHAREGPT, 161.31, 337.99)])
def test_mean_lengths_are_the_published_ones_but_for_the_cut(dataset, prompt, output):
    assert dataset.means() == pytest.approx((prompt, output), rel=0.12)


def test_every_data_set_has_shares_that_add_up():
    for dataset in DATASETS.values():
        assert sum(part.share for part in dataset.parts) == pytest.approx(1)
        assert dataset.mix().sum() == pytest.approx(1)


def test_a_running_request_has_more_context_than_the_mean_request():
    """The mean is over decoded tokens, of which long outputs have most."""
    prompt, output = SHAREGPT.means()
    assert SHAREGPT.context() > 1.2 * (prompt + output / 2)
    one = suites.paper()["7b-sharegpt/rates"]
    machine, tokens, read = Machine(one, 0), 0, 0
    while machine.batch > 0 and tokens < 300_000:
        state = machine.state[0]
        running = state["order"][: int(state["running"])]
        emits = running[state["emits"][running] > 0]
        tokens += len(emits)
        read += int(state["context"][emits].sum())
        machine.follow(NO_DRAFT, most_steps=1)
    assert read / tokens == pytest.approx(SHAREGPT.context(), rel=0.1)


@pytest.mark.parametrize("pair", ["7b", "13b"])
@pytest.mark.parametrize("dataset", [ALPACA, SHAREGPT])
def test_below_its_capacity_an_engine_without_a_draft_keeps_up_and_above_it_does_not(pair, dataset):
    rate, seconds = suites.capacity(pair, dataset), 400.0
    took = {}
    for share in (0.8, 1.25):
        load = [Piece(share * rate, round(share * rate * seconds))]
        machine = Machine(suites.scenario("test", pair, dataset, load, "throughput"), 0)
        machine.follow(NO_DRAFT)
        took[share] = float(machine.state["now"][0])
    assert took[0.8] < 1.1 * seconds < 1.15 * seconds < took[1.25]


def test_every_run_of_a_cell_is_as_long_as_the_papers():
    for name, one in suites.paper().items():
        if name.endswith("/rates"):
            arrival = np.concatenate([chunk.arrival for chunk in one.trace(0)])
            assert len(one.conditions) == 5
            assert len(arrival) >= 5 * 480
            assert np.diff([condition.start for condition in one.conditions]).min() >= 49


def test_even_requests_fill_the_time_that_their_rate_says():
    load = [Piece(4.0, 8), Piece(0.5, 1), Piece(2.0, 4)]
    arrival = np.concatenate([chunk.arrival for chunk in arrivals.evenly(load, DEMO, 0)])
    assert arrival.tolist() == [*(i / 4 for i in range(8)), 2.0, *(4 + i / 2 for i in range(4))]


def test_in_the_surge_speculation_pays_when_it_is_quiet_and_costs_in_the_crowd():
    one = suites.paper()["cpu/surge"]
    assert one.drifts
    for index, condition in enumerate(one.conditions):
        cost = oracle.costs(one, condition)
        crowd = index % 2 == 1
        assert cost[0, 1] / cost[3, 1] > (1 if crowd else 2)
        assert cost[0, 64] / cost[3, 64] == pytest.approx(0.62, abs=0.02) or not crowd
