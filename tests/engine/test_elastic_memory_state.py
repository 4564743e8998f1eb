"""Who has the draft's memory: what is possible when, and that everybody who asks gets an answer."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nightjar_api.engine.v1.engine_pb2 import (
    DRAFT_RESIDENCY_AWAY,
    DRAFT_RESIDENCY_LEAVING,
    DRAFT_RESIDENCY_ON_DEVICE,
    DRAFT_RESIDENCY_RETURNING,
)
from nightjar_engine_patch.elastic.directive import ExpandDirective, Obeyed, SqueezeDirective
from nightjar_engine_patch.elastic.memory_state import MemoryState
from nightjar_engine_patch.elastic.operations import Kind, Operation
from nightjar_engine_patch.errors import ElasticError, PoolBusyError

FEW, MANY = 10, 14


class Blocks:
    """A pool that has room unless a test says otherwise."""

    def __init__(self):
        self.total = FEW
        self.is_full = False
        self.withdrawn = 0
        self.per_step = MANY

    def grow(self, total):
        assert total > self.total
        self.total = total

    def withdraw(self, total, most):
        assert total == FEW < self.total
        assert most > 0
        if self.is_full:
            raise PoolBusyError("4 free blocks are required to give them back, found 2")
        self.withdrawn = min(self.withdrawn + self.per_step, MANY - FEW)
        return self.withdrawn == MANY - FEW

    def give_back(self):
        self.withdrawn = 0

    def shrink(self, total):
        assert self.withdrawn == MANY - FEW
        self.withdrawn = 0
        self.total = total
        return [(12, 3), (13, 4)]


@pytest.fixture
def blocks():
    return Blocks()


@pytest.fixture
def state(blocks):
    return MemoryState(blocks, now_ns=count(step=100).__next__)


def ask(state, kind):
    operation = Operation(kind)
    state.submit(operation)
    return operation


def expanded(state):
    ask(state, Kind.EXPAND)
    assert state.decide(0, "") == ExpandDirective()
    state.obeyed(Obeyed(MANY, 1000))


def refusal(operation):
    with pytest.raises(ElasticError) as caught:
        list(operation.progress())
    return str(caught.value)


def residencies(operation):
    return [progress.residency for progress in operation.progress()]


def test_the_pool_grows_when_the_workers_have_the_memory_and_not_before(state, blocks):
    operation = ask(state, Kind.EXPAND)
    assert state.decide(0, "") == ExpandDirective()
    assert (blocks.total, state.draft_is_here) == (FEW, False)
    state.obeyed(Obeyed(MANY, 1000))
    assert blocks.total == MANY
    begun, done = operation.progress()
    assert (begun.residency, begun.blocks) == (DRAFT_RESIDENCY_LEAVING, FEW)
    assert (done.residency, done.blocks, done.moved_bytes) == (DRAFT_RESIDENCY_AWAY, MANY, 1000)
    assert done.elapsed_ns == 100


def test_the_pool_shrinks_before_the_workers_give_the_memory_back(state, blocks):
    expanded(state)
    operation = ask(state, Kind.SQUEEZE)
    assert state.decide(0, "") == SqueezeDirective(((12, 3), (13, 4)))
    assert (blocks.total, state.residency) == (FEW, DRAFT_RESIDENCY_RETURNING)
    state.obeyed(Obeyed(FEW, 1000))
    begun, moved, done = operation.progress()
    assert (begun.residency, begun.moved_blocks) == (DRAFT_RESIDENCY_RETURNING, 0)
    assert (moved.residency, moved.moved_blocks) == (DRAFT_RESIDENCY_RETURNING, 2)
    assert (done.residency, done.moved_blocks, done.blocks) == (DRAFT_RESIDENCY_ON_DEVICE, 2, FEW)
    assert state.draft_is_here


def test_speculation_forbids_to_expand(state):
    operation = ask(state, Kind.EXPAND)
    assert state.decide(0, "plan 7, which has γ up to 3") is None
    assert refusal(operation) == "expand: γ = 0 for every batch is required, found plan 7, which has γ up to 3"
    assert state.draft_is_here


def test_waiting_requests_forbid_to_squeeze_and_not_to_expand(state):
    ask(state, Kind.EXPAND)
    assert state.decide(3, "") == ExpandDirective()
    state.obeyed(Obeyed(MANY, 1000))
    operation = ask(state, Kind.SQUEEZE)
    assert state.decide(3, "") is None
    assert refusal(operation) == "squeeze: no waiting request is required, found 3"
    assert state.residency == DRAFT_RESIDENCY_AWAY


def test_a_pool_without_room_forbids_to_squeeze(state, blocks):
    expanded(state)
    blocks.is_full = True
    operation = ask(state, Kind.SQUEEZE)
    assert state.decide(0, "") is None
    assert refusal(operation) == "4 free blocks are required to give them back, found 2"
    assert state.residency == DRAFT_RESIDENCY_AWAY
    assert not state.is_busy


def test_blocks_are_withdrawn_over_several_steps_before_any_moves(state, blocks):
    """All at once would hold up a step by milliseconds."""
    expanded(state)
    blocks.per_step = 2
    operation = ask(state, Kind.SQUEEZE)
    assert state.decide(0, "") is None
    assert (state.has_to_decide, state.is_busy, state.draft_is_here) == (True, True, False)
    assert (blocks.total, blocks.withdrawn, state.residency) == (MANY, 2, DRAFT_RESIDENCY_RETURNING)
    assert isinstance(state.decide(0, ""), SqueezeDirective)
    assert (blocks.total, state.has_to_decide) == (FEW, False)
    state.obeyed(Obeyed(FEW, 1000))
    assert residencies(operation)[-1] == DRAFT_RESIDENCY_ON_DEVICE


@pytest.mark.parametrize("reason", ["full", "waiting"])
def test_pressure_that_comes_while_blocks_are_withdrawn_gets_them_back(state, blocks, reason):
    expanded(state)
    blocks.per_step = 2
    first = ask(state, Kind.SQUEEZE)
    assert state.decide(0, "") is None
    second = ask(state, Kind.SQUEEZE)
    blocks.is_full = reason == "full"
    assert state.decide(int(reason == "waiting"), "") is None
    assert refusal(first) == refusal(second)
    assert (blocks.total, blocks.withdrawn, state.residency) == (MANY, 0, DRAFT_RESIDENCY_AWAY)
    assert not state.is_busy
    blocks.is_full = False
    ask(state, Kind.SQUEEZE)
    state.decide(0, "")
    assert isinstance(state.decide(0, ""), SqueezeDirective), "and it can be asked for again"


def test_what_is_done_already_is_told_and_not_done_again(state):
    operation = ask(state, Kind.SQUEEZE)
    assert state.decide(0, "") is None
    assert residencies(operation) == [DRAFT_RESIDENCY_ON_DEVICE]
    expanded(state)
    operation = ask(state, Kind.EXPAND)
    assert state.decide(0, "speculation") is None
    assert residencies(operation) == [DRAFT_RESIDENCY_AWAY]


def test_who_asks_for_what_is_under_way_joins(state):
    first, second = ask(state, Kind.EXPAND), ask(state, Kind.EXPAND)
    assert state.decide(0, "") == ExpandDirective()
    third = ask(state, Kind.EXPAND)
    assert state.decide(0, "speculation") is None
    state.obeyed(Obeyed(MANY, 1000))
    for operation in (first, second, third):
        assert residencies(operation) == [DRAFT_RESIDENCY_LEAVING, DRAFT_RESIDENCY_AWAY]


def test_the_opposite_of_what_is_under_way_is_refused(state):
    ask(state, Kind.EXPAND)
    back = ask(state, Kind.SQUEEZE)
    assert state.decide(0, "") == ExpandDirective()
    assert refusal(back) == "squeeze: the draft is leaving; ask again when it has left"
    state.obeyed(Obeyed(MANY, 1000))
    ask(state, Kind.SQUEEZE)
    there = ask(state, Kind.EXPAND)
    assert isinstance(state.decide(0, ""), SqueezeDirective)
    assert refusal(there) == "expand: the draft is returning; ask again when it is back"


def test_asking_wakes_an_engine_that_sleeps(state):
    calls = []
    state.wake = lambda: calls.append(state.is_busy)
    ask(state, Kind.EXPAND)
    assert calls == [True]


def test_an_engine_that_stops_answers_everybody(state):
    begun = ask(state, Kind.EXPAND)
    state.decide(0, "")
    waiting = ask(state, Kind.EXPAND)
    state.close()
    late = ask(state, Kind.EXPAND)
    assert refusal(begun) == refusal(waiting) == refusal(late) == "the engine is stopping"


class Calls(RuleBasedStateMachine):
    """Any calls at any time, and workers that take any number of steps."""

    def __init__(self):
        super().__init__()
        self.blocks = Blocks()
        self.blocks.per_step = 3
        self.state = MemoryState(self.blocks, now_ns=count().__next__)
        self.under_way = None
        self.operations = []

    @rule(kind=st.sampled_from(Kind))
    def somebody_asks(self, kind):
        self.operations.append(ask(self.state, kind))

    @rule(waiting=st.integers(0, 1), speculation=st.sampled_from(["", "speculation"]), is_full=st.booleans())
    def a_step(self, waiting, speculation, is_full):
        self.blocks.is_full = is_full
        directive = self.state.decide(waiting, speculation)
        assert not self.state.asked
        if directive is not None:
            assert self.under_way is None, "one change at a time"
            self.under_way = directive
            assert not (isinstance(directive, ExpandDirective) and speculation)
            assert not (isinstance(directive, SqueezeDirective) and (waiting or is_full))

    @precondition(lambda self: self.under_way is not None)
    @rule()
    def the_workers_are_done(self):
        expands = isinstance(self.under_way, ExpandDirective)
        self.under_way = None
        self.state.obeyed(Obeyed(MANY if expands else FEW, 1000))

    @invariant()
    def blocks_are_there_only_while_the_draft_is_away(self):
        withdraws = self.state.residency == DRAFT_RESIDENCY_RETURNING and self.under_way is None
        assert (self.blocks.total == MANY) == (withdraws or self.state.residency == DRAFT_RESIDENCY_AWAY)
        under_way = {DRAFT_RESIDENCY_LEAVING, DRAFT_RESIDENCY_RETURNING}
        assert (self.under_way is not None or withdraws) == (self.state.residency in under_way)
        assert self.state.is_busy == (bool(self.state.asked) or self.state.residency in under_way)
        assert self.state.has_to_decide == (bool(self.state.asked) or withdraws)

    def teardown(self):
        if self.under_way is not None:
            self.the_workers_are_done()
        self.state.decide(0, "")
        self.state.close()
        for operation in self.operations:
            try:
                last = residencies(operation)[-1]
            except ElasticError:
                continue
            assert last == operation.kind.done


TestCalls = Calls.TestCase
TestCalls.settings = settings(max_examples=100, stateful_step_count=30)
