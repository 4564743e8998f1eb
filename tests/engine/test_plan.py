"""The plan as the scheduler reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_engine_patch.errors import PlanError
from nightjar_engine_patch.plan import MOST_SCHEDULED_STEPS, compile_plan

GAMMA_MAX = 5
schedules = st.lists(st.tuples(st.integers(0, GAMMA_MAX), st.integers(0, 7)), max_size=4)
bounds = st.lists(st.integers(1, 300), min_size=1, max_size=6, unique=True).map(sorted)


def compiled(plan, max_batch=64, now_ns=0):
    return compile_plan(plan, gamma_max=GAMMA_MAX, max_batch=max_batch, now_ns=now_ns)


@given(bounds, st.integers(1, 256))
def test_every_batch_has_the_first_bucket_that_covers_it_and_larger_ones_the_last(make_plan, bounds, max_batch):
    plan = compiled(make_plan(*[(bound, [], index % GAMMA_MAX) for index, bound in enumerate(bounds)]), max_batch)
    for batch in range(max_batch + 1):
        covering = [index for index, bound in enumerate(bounds) if batch <= bound]
        expected = covering[0] if covering else len(bounds) - 1
        assert plan.bucket_of_batch[batch] == expected
        assert plan.next_gamma(batch) == expected % GAMMA_MAX


@given(st.lists(schedules, min_size=2, max_size=3), st.lists(st.integers(0, 99), max_size=80))
def test_each_bucket_walks_its_schedule_once_by_its_own_steps_and_then_holds(make_plan, schedules, batches):
    buckets = [(10 * (index + 1), schedule, index) for index, schedule in enumerate(schedules)]
    plan = compiled(make_plan(*buckets), max_batch=99)
    ahead = [[gamma for gamma, steps in schedule for _ in range(steps)] for schedule in schedules]
    for batch in batches:
        bucket = min(max(batch - 1, 0) // 10, len(schedules) - 1)
        expected = ahead[bucket].pop(0) if ahead[bucket] else bucket
        assert plan.next_gamma(batch) == expected


@given(schedules, st.integers(0, GAMMA_MAX), st.integers(0, 30))
def test_the_longest_length_is_the_longest_that_is_still_to_come(make_plan, schedule, hold, visits):
    plan = compiled(make_plan((8, schedule, hold), (9, [], 0)))
    before = plan.longest
    for _ in range(visits):
        plan.next_gamma(1)
    assert plan.most == before
    ahead = [gamma for gamma, steps in schedule for _ in range(steps)][visits:]
    assert plan.longest == max([*ahead, hold])


def test_a_plan_expires_its_time_to_live_after_it_came(make_plan):
    plan = compiled(make_plan((8, [], 1), version=3, ttl_ms=250), now_ns=1_000_000_000)
    assert plan.version == 3
    assert plan.expires_ns == 1_250_000_000


@pytest.mark.parametrize(
    ("buckets", "values", "message"),
    [
        ([(8, [], 1)], {"ttl_ms": 0}, "plan.ttl_ms: at least 1 is required, found 0"),
        ([], {}, "plan.buckets: growing max_batch from 1 are required, found []"),
        ([(0, [], 1)], {}, "plan.buckets: growing max_batch from 1 are required, found [0]"),
        ([(8, [], 1), (8, [], 0)], {}, "plan.buckets: growing max_batch from 1 are required, found [8, 8]"),
        ([(8, [], 1), (4, [], 0)], {}, "plan.buckets: growing max_batch from 1 are required, found [8, 4]"),
        (
            [(8, [], 6)],
            {},
            "plan.buckets[0].hold_gamma: at most num_speculative_tokens (5) is required, found 6",
        ),
        (
            [(8, [], 1), (9, [(5, 1), (7, 0)], 0)],
            {},
            "plan.buckets[1].schedule[1].gamma: at most num_speculative_tokens (5) is required, found 7",
        ),
        (
            [(8, [(1, MOST_SCHEDULED_STEPS), (2, 1)], 1)],
            {},
            "plan.buckets[0].schedule: at most 10000 steps are required, found 10001",
        ),
        (
            [(8, [(1, 2**32 - 1)], 1)],
            {},
            "plan.buckets[0].schedule: at most 10000 steps are required, found 4294967295",
        ),
    ],
)
def test_a_plan_that_cannot_be_obeyed_is_refused_by_its_field(make_plan, buckets, values, message):
    with pytest.raises(PlanError) as refusal:
        compiled(make_plan(*buckets, **values))
    assert str(refusal.value) == message


def test_the_longest_allowed_schedule_is_obeyed_to_its_end(make_plan):
    plan = compiled(make_plan((8, [(GAMMA_MAX, MOST_SCHEDULED_STEPS)], 0)))
    assert {plan.next_gamma(1) for _ in range(MOST_SCHEDULED_STEPS)} == {GAMMA_MAX}
    assert plan.next_gamma(1) == 0
