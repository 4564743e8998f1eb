"""Metrics of a sidecar whose clock and engine are the test's own."""

from itertools import count
from random import Random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nightjar_api.engine.v1.engine_pb2 import EngineInfo, StepBatch, StepReport
from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings
from nightjar_sidecar.controller import Controller
from nightjar_sidecar.status import status

MS = 1_000_000
AGE, TTL = "nightjar_plan_age_seconds", "nightjar_plan_ttl_seconds"
REGRET, PREDICTED = "nightjar_regret_estimate_seconds_total", "nightjar_predicted_round_seconds_total"


class World:
    """A controller, the clock it reads, and an engine that does as it is told."""

    def __init__(self, **planner):
        self.now = 100.0
        self.controller = Controller(self.settings(**planner), lambda: self.now, Random(0))
        self._steps = count(1)

    def settings(self, **planner):
        return SidecarSettings(revision="one", planner=PlannerSpec(**({"buckets": [1, 8, 64]} | planner)))

    def connect(self, engine="first"):
        self.controller.engine_connected(EngineInfo(engine_id=engine, gamma_max=3, max_batch=64))

    def plan(self):
        """The engine takes the plan that is due; its version."""
        plan = self.controller.plan_due()
        self.controller.plan_applied(plan)
        return plan.version

    def rounds(self, number, gamma, batch=4):
        """Rounds of 10 ms and of 1 ms more for each drafted token; all drafts are accepted."""
        for _ in range(number):
            step = next(self._steps)
            drafted = StepReport(
                step=step,
                time_ns=step * 20 * MS,
                decode_batch=batch,
                gamma_verified=gamma,
                drafted_at_step=step - 1 if gamma else 0,
                gamma_drafted=gamma,
                emitted_tokens=batch * (1 + gamma),
                verified_by_position=[batch] * gamma,
                accepted_by_position=[batch] * gamma,
                forward_ns=10 * MS,
                draft_ns=gamma * MS,
                running=batch,
            )
            self.controller.observe(StepBatch(reports=[drafted]))

    def samples(self, name):
        """Labels and values, as Prometheus reads them."""
        families = text_string_to_metric_families(self.controller.metrics.text().decode())
        return [(one.labels, one.value) for family in families for one in family.samples if one.name == name]


def test_the_age_of_the_plan_grows_until_the_engine_takes_another():
    world = World(policy="fixed", plan_ttl="3s")
    world.connect()
    assert world.samples(AGE) == []
    world.plan()
    assert world.samples(TTL) == [({}, 3.0)]
    for seconds in (0.0, 0.9, 40.0):
        world.now = 100.0 + seconds
        assert world.samples(AGE) == [({}, pytest.approx(seconds))]
    world.plan()
    assert world.samples(AGE) == [({}, 0.0)]


def test_an_engine_that_is_away_or_has_taken_no_plan_has_no_plan_of_any_age():
    world = World(policy="fixed")
    world.connect()
    world.plan()
    world.controller.engine_lost("gone")
    assert world.samples(AGE) == []
    world.connect("second")
    assert world.samples(AGE) == []
    world.plan()
    assert world.samples(AGE) == [({}, 0.0)]


def test_the_regret_of_rounds_at_the_wrong_length_adds_up_and_that_at_the_best_does_not():
    world = World()
    world.connect()
    world.rounds(100, gamma=0)
    world.rounds(100, gamma=3)
    ((_, before),) = world.samples(REGRET)
    world.rounds(100, gamma=3)
    ((labels, best),) = world.samples(REGRET)
    assert labels == {"policy": "nightjar"}
    # γ = 3 gives four tokens in 13 ms: the best there is.
    assert best == pytest.approx(before, abs=1e-3)
    ((_, predicted),) = world.samples(PREDICTED)
    world.rounds(100, gamma=0)
    ((_, wrong),) = world.samples(REGRET)
    ((_, of),) = world.samples(PREDICTED)
    # A token in 10 ms, and the host takes 10 ms of every step; at γ = 3 it would be one in 5 ms, or a little more.
    assert 0.5 < (wrong - best) / (of - predicted) < 0.8
    assert status(world.controller)["regret"]["share"] > 0.1


@pytest.mark.parametrize(
    "planner", [{"policy": "fixed"}, {"policy": "off"}, {"policy": "static-table", "table": [[1, 8, 1]]}]
)
def test_a_policy_that_believes_nothing_publishes_no_regret(planner):
    world = World(**planner)
    world.connect()
    world.rounds(50, gamma=0)
    world.rounds(50, gamma=2)
    assert world.samples(REGRET) == world.samples(PREDICTED) == []
    assert status(world.controller)["regret"] == {"share": None, "rounds": 0}


def test_the_regret_of_another_policy_is_counted_by_itself():
    world = World()
    world.connect()
    world.rounds(100, gamma=0)
    world.rounds(100, gamma=3)
    seen = world.samples(REGRET)
    world.controller.change_settings(world.settings(policy="fixed"))
    world.rounds(50, gamma=3)
    assert world.samples(REGRET) == seen
    assert status(world.controller)["regret"] == {"share": None, "rounds": 0}
    world.controller.change_settings(world.settings(policy="banditspec-ucb"))
    world.rounds(50, gamma=0)
    world.rounds(50, gamma=3)
    assert [labels["policy"] for labels, _ in world.samples(REGRET)] == ["nightjar", "banditspec-ucb"]


def test_settings_that_leave_the_policy_alone_leave_its_regret():
    world = World()
    world.connect()
    world.rounds(100, gamma=0)
    world.rounds(100, gamma=3)
    rounds = status(world.controller)["regret"]["rounds"]
    assert rounds > 0
    world.controller.change_settings(world.settings(plan_ttl="5s"))
    assert status(world.controller)["regret"]["rounds"] == rounds
