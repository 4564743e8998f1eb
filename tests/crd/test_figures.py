"""What `operator_figures.definition` records is what is wanted of it."""

from pathlib import Path

from nightjar_benchmarks.goals import GOALS
from nightjar_benchmarks.operator_figures.definition import TOPIC, measure

ROOT = Path(__file__).parents[2]


def test_its_figures_have_goals_and_those_that_do_not_take_long_meet_them(control_plane):
    found = measure(ROOT, control_plane, count=5, seed=1)
    assert set(found) == {"fuzzed_specs", "fuzz_failures", "crd_kib"}
    goals = {goal.name: goal for goal in GOALS if goal.topic == TOPIC}
    assert found["fuzzed_specs"].value == 5
    assert goals["fuzz_failures"].met(found["fuzz_failures"].value)
    assert goals["crd_kib"].met(found["crd_kib"].value)
    assert {name: goals[name].unit for name in found} == {name: figure.unit for name, figure in found.items()}
