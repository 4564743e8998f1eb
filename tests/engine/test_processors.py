"""Where an engine core may run beside workers whose threads are bound."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_engine_patch.cpu.processors import others

SETS = st.sets(st.integers(0, 7), min_size=1)

IN_A_PROCESS_OF_ITS_OWN = """
import os, sys, threading
from nightjar_engine_patch.cpu.processors import stay_off

end, found = threading.Event(), []
thread = threading.Thread(target=lambda: (end.wait(), found.append(sorted(os.sched_getaffinity(0)))))
thread.start()
stay_off([int(sys.argv[1])])
end.set()
thread.join()
print(sorted(os.sched_getaffinity(0)), *found, sep="\\n")
"""


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
def test_all_threads_of_the_engine_core_leave_a_workers_processor():
    own = sorted(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as worker:
        os.sched_setaffinity(worker.pid, {own[0]})
        command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN, str(worker.pid)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        worker.kill()
    assert found.stdout.split("\n")[:2] == [str(own[1:])] * 2
