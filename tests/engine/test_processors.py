"""Where an engine core may run beside workers whose threads are bound."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_engine_patch.cpu.processors import others, sleep_off

SETS = st.sets(st.integers(0, 7), min_size=1)


@pytest.mark.parametrize(
    ("own", "workers", "left"),
    [
        ({0, 1}, [{0}], {1}),
        ({0, 1, 2, 3}, [{0}, {1}, {2}, {0, 1, 2, 3}], {3}),
        ({0, 1}, [{0, 1}], {0, 1}),
        ({0, 1}, [{0}, {1}], {0, 1}),
        ({0, 1}, [set()], {0, 1}),
    ],
    ids=["one bound", "helpers are not bound", "none is bound", "none would be left", "a thread that ended"],
)
def test_processors_that_a_workers_thread_is_bound_to_are_left_to_it(own, workers, left):
    assert others(own, workers) == left


@given(SETS, st.lists(SETS))
def test_a_processor_always_remains_and_none_is_gained(own, workers):
    assert set() < others(own, workers) <= own


@pytest.fixture
def bound():
    """A process bound to the first processor; it ends with its input, however the test ends."""
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs Linux and two processors or more")
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as worker:
        os.sched_setaffinity(worker.pid, {min(os.sched_getaffinity(0))})
        yield worker.pid


def test_who_sleeps_wakes_off_a_workers_processor_and_may_go_anywhere_then(bound):
    own = os.sched_getaffinity(0)
    seen = []
    sleep_off([bound], lambda seconds: seen.append((seconds, os.sched_getaffinity(0))))(0.25)
    assert seen == [(0.25, own - {min(own)})]
    assert os.sched_getaffinity(0) == own


def test_beside_workers_that_are_not_bound_a_sleep_is_a_sleep():
    seen = []
    assert sleep_off([os.getpid()], seen.append) == seen.append


def test_a_sleep_that_is_interrupted_leaves_the_thread_free_to_go_anywhere(bound):
    def interrupted(_):
        raise KeyboardInterrupt

    own = os.sched_getaffinity(0)
    with pytest.raises(KeyboardInterrupt):
        sleep_off([bound], interrupted)(1.0)
    assert os.sched_getaffinity(0) == own
