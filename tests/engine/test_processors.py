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


@pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two processors or more"
)
def test_who_sleeps_wakes_off_a_workers_processor_and_may_go_anywhere_then():
    own = os.sched_getaffinity(0)
    seen = []
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as worker:
        os.sched_setaffinity(worker.pid, {min(own)})
        sleep = sleep_off([worker.pid], lambda seconds: seen.append((seconds, os.sched_getaffinity(0))))
        sleep(0.25)
        worker.kill()
    assert seen == [(0.25, own - {min(own)})]
    assert os.sched_getaffinity(0) == own


def test_beside_workers_that_are_not_bound_a_sleep_is_a_sleep():
    seen = []
    assert sleep_off([os.getpid()], seen.append) == seen.append
