"""Keys that wait: each once, failures later and later, nothing lost."""

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nightjar_operator.backlog import Backlog, retry_delay


@pytest.fixture
def backlog():
    return Backlog(random.Random(0))


def test_a_key_asked_for_twice_is_given_once(backlog):
    backlog.add("a", 0)
    backlog.add("a", 0)
    assert [backlog.take(0), backlog.take(0)] == ["a", None]


def test_a_key_is_not_given_before_it_is_due(backlog):
    backlog.add("a", 5)
    assert backlog.take(4.9) is None
    assert backlog.next_due() == 5
    assert backlog.take(5) == "a"


def test_the_earlier_of_two_times_counts(backlog):
    backlog.add("a", 60)
    backlog.add("a", 1)
    assert backlog.take(1) == "a"
    backlog.done("a")
    assert backlog.take(60) is None


def test_a_key_asked_for_during_work_comes_back_when_the_work_is_done(backlog):
    backlog.add("a", 0)
    assert backlog.take(0) == "a"
    backlog.add("a", 0)
    assert backlog.take(0) is None
    backlog.done("a")
    assert backlog.take(0) == "a"


def test_failures_come_back_later_and_later_and_success_starts_anew(backlog):
    waits = []
    now = 0.0
    backlog.add("a", now)
    for _ in range(4):
        assert backlog.take(now) == "a"
        waits.append(backlog.failed("a", now))
        assert backlog.take(now + waits[-1] - 0.001) is None
        now += waits[-1]
    assert waits == sorted(waits)
    assert backlog.failing == 1
    assert backlog.take(now) == "a"
    backlog.done("a")
    assert backlog.failing == 0
    backlog.add("a", now)
    assert backlog.take(now) == "a"
    assert backlog.failed("a", now) <= 0.5


def test_changes_during_a_failing_attempt_do_not_cut_the_wait_short(backlog):
    backlog.add("a", 0)
    backlog.take(0)
    backlog.add("a", 0)
    delay = backlog.failed("a", 0)
    assert backlog.take(delay / 2) is None


def test_a_change_after_a_failure_is_looked_at_once(backlog):
    backlog.add("a", 0)
    backlog.take(0)
    backlog.failed("a", 0)
    backlog.add("a", 0.01)
    assert backlog.take(0.01) == "a"


@pytest.mark.parametrize("failures", [1, 2, 5, 50, 5000])
def test_a_retry_is_never_at_once_and_never_later_than_a_minute(failures):
    delays = [retry_delay(failures, random.Random(seed)) for seed in range(50)]
    assert all(0.25 <= delay <= 60 for delay in delays)
    assert len(set(delays)) > 1


class Backlogs(RuleBasedStateMachine):
    """Whatever is asked for is given, to one worker at a time."""

    def __init__(self):
        super().__init__()
        self.backlog = Backlog(random.Random(1))
        self.now = 0.0
        self.working = set()
        self.asked = set()

    @rule(key=st.integers(0, 3), wait=st.floats(0, 10))
    def ask(self, key, wait):
        self.backlog.add(key, self.now + wait)
        self.asked.add(key)

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds):
        self.now += seconds

    @rule()
    def take(self):
        key = self.backlog.take(self.now)
        if key is not None:
            assert key not in self.working
            assert key in self.asked
            self.asked.discard(key)
            self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data(), well=st.booleans())
    def give_back(self, data, well):
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.working.discard(key)
        if well:
            self.backlog.done(key)
        else:
            self.backlog.failed(key, self.now)
            self.asked.add(key)

    @invariant()
    def what_was_asked_for_waits(self):
        assert len(self.backlog) == len(self.asked)

    def teardown(self):
        for key in list(self.working):
            self.backlog.done(key)
        given = set()
        while (key := self.backlog.take(self.now + 1e6)) is not None:
            given.add(key)
            self.backlog.done(key)
        assert given == self.asked


TestBacklogs = Backlogs.TestCase
