from collections import deque
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightjar_api.errors import ConfigurationError
from nightjar_api.service import PlannerSpec
from nightjar_sidecar.planner import Planner, check, goes_on
from nightjar_sidecar.policies.protocol import Decision, Segment
from nightjar_sidecar.policies.registry import FACTORY_BY_NAME
from nightjar_sidecar.switch_cost import SwitchCost

FREE = SwitchCost(0.0)


def planner(gamma_max=3, **spec):
    if spec.get("policy") == "static-table":
        spec = {"table": [[1, 8, 1], [9, 64, 0]]} | spec
    return Planner(PlannerSpec(**({"buckets": [1, 4, 16, 64]} | spec)), gamma_max, Random(0))


def follow(plan):
    """What an engine does with `plan`: a function from batch to length."""
    schedules = [deque(gamma for gamma, steps in _segments(b) for _ in range(steps)) for b in plan.buckets]

    def gamma(batch):
        index = next((i for i, b in enumerate(plan.buckets) if batch <= b.max_batch), len(plan.buckets) - 1)
        return schedules[index].popleft() if schedules[index] else plan.buckets[index].hold_gamma

    return gamma


def _segments(bucket):
    return [(segment.gamma, segment.steps) for segment in bucket.schedule]


def test_a_fixed_policy_holds_its_length_in_every_bucket():
    plan = planner(policy="fixed", fixed_gamma=2).due(0.0, FREE)
    assert [(b.max_batch, b.hold_gamma, len(b.schedule)) for b in plan.buckets] == [
        (1, 2, 0),
        (4, 2, 0),
        (16, 2, 0),
        (64, 2, 0),
    ]
    assert (plan.version, plan.ttl_ms) == (1, 2000)


def test_versions_continue_from_the_engines():
    subject = planner(policy="off")
    subject.continue_from(41)
    assert subject.due(0.0, FREE).version == 42


def test_an_unchanged_plan_is_renewed_well_before_it_expires():
    subject = planner(policy="off", plan_ttl="3s")
    subject.due(0.0, FREE)
    assert subject.due(0.9, FREE) is None
    assert subject.renewal(0.9) == pytest.approx(0.1)
    assert subject.due(1.0, FREE).version == 2
    assert subject.lives(3.9)
    assert not subject.lives(4.0)


def test_new_settings_are_sent_at_once():
    subject = planner(policy="fixed", fixed_gamma=3)
    subject.due(0.0, FREE)
    subject.configure(PlannerSpec(policy="fixed", fixed_gamma=1, buckets=[8]), 3)
    plan = subject.due(0.0, FREE)
    assert [(b.max_batch, b.hold_gamma) for b in plan.buckets] == [(8, 1)]


def test_a_policy_that_returns_knows_what_it_had_learnt(toy):
    subject, world = planner(policy="nightjar"), toy(0)
    for _ in range(100):
        subject.learn(world.run(4, subject.policy.predict(world.context(4)).gamma))
    learnt = subject.policy.score(world.context(4))
    subject.configure(PlannerSpec(policy="off", buckets=[1, 4, 16, 64]), 3)
    assert subject.due(0.0, FREE).buckets[1].hold_gamma == 0
    subject.configure(PlannerSpec(policy="nightjar", buckets=[1, 4, 16, 64]), 3)
    assert subject.policy.score(world.context(4)) == pytest.approx(learnt)


def test_the_longest_length_is_the_engines_unless_the_settings_lower_it():
    assert planner(gamma_max=5).space.gamma_max == 5
    assert Planner(PlannerSpec(gamma_max=2), 5, Random(0)).space.gamma_max == 2


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"gamma_max": 4}, "planner.gammaMax"),
        ({"policy": "fixed", "fixed_gamma": 4}, "planner.fixedGamma"),
        ({"policy": "fixed", "fixed_gamma": 3, "gamma_max": 2}, "planner.fixedGamma"),
    ],
)
def test_lengths_that_the_engine_was_not_built_for_are_refused_by_name(spec, field):
    with pytest.raises(ConfigurationError, match=rf"^{field}: at most [23].* found [34]"):
        check(PlannerSpec(**spec), 3)


def test_every_policy_of_the_service_has_a_factory():
    assert set(FACTORY_BY_NAME) == set(PlannerSpec.model_fields["policy"].annotation.__args__)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (Decision(1), Decision(1), True),
        (Decision(1), Decision(2), False),
        (Decision(1, (Segment(3, 4),)), Decision(1, (Segment(3, 2),)), True),
        (Decision(1, (Segment(3, 4),)), Decision(1), True),
        (Decision(1), Decision(1, (Segment(3, 2),)), False),
        (Decision(1, (Segment(3, 2),)), Decision(1, (Segment(3, 4),)), False),
        (Decision(1, (Segment(3, 2),)), Decision(1, (Segment(2, 2),)), False),
        (Decision(1, (Segment(3, 2), Segment(2, 5))), Decision(1, (Segment(2, 3),)), True),
        (Decision(1, (Segment(3, 2), Segment(2, 5))), Decision(1, (Segment(3, 1), Segment(2, 4))), False),
    ],
)
def test_a_plan_goes_on_when_the_new_decision_is_what_remains_of_it(old, new, expected):
    assert goes_on(old, new) is expected


@pytest.mark.parametrize("policy", ["nightjar", "ada-bingreedy"])
@pytest.mark.parametrize("delay", [1, 5, 20])
def test_policies_work_through_plans_and_late_reports(toy, policy, delay):
    """Reports come `delay` rounds late, and a plan acts only then: exploration neither stalls nor runs on."""
    subject, world = planner(policy=policy), toy(0, catch_up_per_token=0.0)
    late, chosen, plans = deque(), [], 0
    gamma = follow(subject.due(0.0, FREE))
    for _ in range(3000):
        chosen.append(gamma(4))
        late.append(world.run(4, chosen[-1]))
        if len(late) >= delay:
            while late:
                subject.learn(late.popleft())
            plan = subject.due(world.now_ns * 1e-9, FREE)
            if plan is not None:
                plans += 1
                gamma = follow(plan)
    near = [g for g in chosen[500:] if world.cost(4, g) <= 1.1 * world.cost(4, world.best(4, 3))]
    assert len(near) > (0.9 if policy == "nightjar" else 0.6) * len(chosen[500:])
    assert plans < 600


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(1, 100), st.floats(0, 1)), max_size=60), st.sampled_from(list(FACTORY_BY_NAME)))
def test_versions_only_grow_and_every_plan_is_one_the_engine_takes(toy, visits, policy):
    subject, world = planner(policy=policy), toy(0)
    now, versions = 0.0, [0]
    for batch, wait in visits:
        now += wait
        plan = subject.due(now, FREE)
        if plan is not None:
            versions.append(plan.version)
            bounds = [bucket.max_batch for bucket in plan.buckets]
            assert bounds == sorted(set(bounds))
            assert all(s.gamma <= 3 and 0 < s.steps < 1000 for b in plan.buckets for s in b.schedule)
            assert all(bucket.hold_gamma <= 3 for bucket in plan.buckets)
        subject.learn(world.run(batch, 2))
    assert versions == sorted(set(versions))


def test_a_table_in_the_settings_is_planned_and_another_replaces_it():
    one = planner(policy="static-table", table=[[1, 4, 3], [5, 16, 1], [17, 64, 0]])
    assert [bucket.hold_gamma for bucket in one.due(0.0, FREE).buckets] == [3, 3, 1, 0]
    one.configure(one.spec.model_copy(update={"table": [[1, 256, 2]]}), 3)
    assert [bucket.hold_gamma for bucket in one.due(0.0, FREE).buckets] == [2, 2, 2, 2]


def test_a_table_longer_than_the_engine_is_refused_with_what_to_do():
    spec = PlannerSpec(policy="static-table", table=[[1, 8, 5]])
    with pytest.raises(ConfigurationError, match=r"planner.table: lengths of at most 3 .* found 5; lower them"):
        check(spec, 3)
