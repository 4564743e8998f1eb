"""Who waits yields, and is out of the way once in a while."""

import warnings
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

with warnings.catch_warnings():
    # Importing vLLM warns of its own use of torch.
    warnings.simplefilter("ignore")
    from nightjar_engine_patch.cpu.waiting import REST_S, SPIN_S, Waiting


class World:
    """Time passes with every call, by so much."""

    def __init__(self, lasts):
        self.now, self.lasts = 1000.0, lasts
        self.yielded, self.rested = [], []

    def clock(self):
        return self.now

    def yield_(self):
        self.now += self.lasts
        self.yielded.append(self.now)

    def sleep(self, seconds):
        self.now += seconds
        self.rested.append(self.now)


@given(lasts=st.floats(1e-7, REST_S))
def test_a_long_wait_rests_after_every_millisecond_and_yields_in_between(lasts):
    world = World(lasts)
    waiting = Waiting(world.clock, world.yield_, world.sleep)
    for _ in range(3000):
        waiting()
    rests = [1000.0, *world.rested, world.now]
    assert max(later - earlier for earlier, later in pairwise(rests)) <= SPIN_S + lasts + REST_S + 1e-9
    assert len(world.rested) <= (world.now - 1000) / SPIN_S


@given(waits=st.lists(st.integers(1, 900), max_size=20))
def test_waits_of_less_than_a_millisecond_never_rest(waits):
    world = World(1e-6)
    waiting = Waiting(world.clock, world.yield_, world.sleep)
    for calls in waits:
        for _ in range(calls):
            waiting()
        # A step, or somebody else's turn.
        world.now += 2 * REST_S
    assert not world.rested
