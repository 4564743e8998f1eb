"""Recorded step reports, replayed off-policy, give the decisions that were made."""

from random import Random

import pytest

from nightjar_api.service import PlannerSpec
from nightjar_benchmarks.compare import suites
from nightjar_benchmarks.compare.contenders import space
from nightjar_benchmarks.profile import recording
from nightjar_benchmarks.simulator.machine import Machine
from nightjar_sidecar.attribution import Attribution
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.policies.registry import FACTORY_BY_NAME
from nightjar_sidecar.switch_cost import SwitchCost

STEPS = 1500
SCENARIO = suites.paper()["cpu/surge"]
SPEC = PlannerSpec(table=[[1, 8, 3], [9, 64, 0]])


class Follower:
    """A policy that sees nothing but step reports, as in the sidecar."""

    def __init__(self, name):
        self.policy = FACTORY_BY_NAME[name](space(SCENARIO), SPEC, Random(7))
        self.attribution, self.cost, self.previous = Attribution(), SwitchCost(), 0

    def choose(self, batch):
        cost = self.cost
        context = Context(batch, self.previous, cost.seconds, cost.steps, cost.seconds_per_token, cost.seconds_per_step)
        return self.policy.predict(context)

    def learn(self, report):
        self.cost.observe(report)
        round_ = self.attribution.round(report)
        self.previous = report.gamma_drafted
        if round_ is not None:
            self.policy.learn(round_)


@pytest.mark.parametrize("name", sorted(FACTORY_BY_NAME))
def test_recorded_reports_replayed_give_the_same_decisions(name, report_of, tmp_path):
    live, machine, reports, choices, batches = Follower(name), Machine(SCENARIO, 0), [], [], []
    while machine.batch > 0 and len(reports) < STEPS:
        batches.append(machine.batch)
        choices.append(live.choose(machine.batch))
        reports.append(report_of(machine.advance(choices[-1].gamma)))
        live.learn(reports[-1])
    recording.write(tmp_path / "steps.jsonl", reports)
    again = Follower(name)
    for batch, choice, report in zip(batches, choices, recording.read(tmp_path / "steps.jsonl"), strict=True):
        assert again.choose(batch) == choice
        assert 0 < choice.probability <= 1
        again.learn(report)
