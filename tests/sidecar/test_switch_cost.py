from random import Random

import pytest

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_sidecar.switch_cost import SwitchCost

MS = 1_000_000


def report(gamma, *, caught_up=0, milliseconds=0.0, stale=0):
    return StepReport(
        gamma_drafted=gamma, catch_up_tokens=caught_up, catch_up_ns=round(milliseconds * MS), stale_tokens=stale
    )


def caught_up(cost, tokens_and_ms):
    for tokens, milliseconds in tokens_and_ms:
        cost.observe(report(3, caught_up=tokens, milliseconds=milliseconds))


def test_a_fixed_cost_is_used_as_it_is():
    cost = SwitchCost(0.012)
    cost.observe(report(0, stale=10_000))
    assert cost.seconds == 0.012


def test_nothing_is_charged_before_a_catch_up_was_measured():
    cost = SwitchCost()
    cost.observe(report(0, stale=10_000))
    assert cost.seconds == 0


def test_the_cost_follows_the_stale_tokens():
    rng = Random(0)
    cost = SwitchCost()
    sizes = [rng.randrange(10, 512) for _ in range(60)]
    caught_up(cost, [(tokens, (2 + 0.05 * tokens) * rng.uniform(0.95, 1.05)) for tokens in sizes])
    assert cost.seconds_per_token == pytest.approx(0.05e-3, rel=0.1)
    assert cost.seconds_per_step == pytest.approx(2e-3, rel=0.3)
    cost.observe(report(0, stale=1000))
    assert cost.seconds == pytest.approx(0.054, rel=0.1)
    cost.observe(report(0, stale=0))
    assert cost.seconds == 0


def test_an_accident_does_not_raise_the_cost():
    cost = SwitchCost()
    caught_up(cost, [(100, 5.0)] * 20 + [(100, 500.0)])
    cost.observe(report(0, stale=100))
    assert cost.seconds == pytest.approx(0.005, rel=0.05)


def test_a_return_is_measured_until_nothing_is_stale():
    cost = SwitchCost()
    cost.observe(report(0, stale=300))
    cost.observe(report(3, caught_up=200, milliseconds=8, stale=100))
    assert cost.returns == 0
    cost.observe(report(3, caught_up=100, milliseconds=4, stale=0))
    assert cost.returns == 1
    assert cost.seconds_per_return == pytest.approx(0.012)


def test_another_engine_has_nothing_stale_but_what_was_measured_stays():
    cost = SwitchCost()
    caught_up(cost, [(100, 5.0)] * 5)
    cost.observe(report(0, stale=100))
    cost.restart()
    assert cost.seconds == 0
    assert cost.seconds_per_token > 0


def test_a_return_takes_as_many_steps_as_the_engine_has_been_seen_to_need():
    cost = SwitchCost()
    cost.observe(report(3, caught_up=256, milliseconds=5, stale=700))
    cost.observe(report(0, stale=1000))
    assert cost.steps == 4


def test_prompts_alone_do_not_tell_how_much_a_step_can_catch_up():
    cost = SwitchCost()
    caught_up(cost, [(20, 1.0), (35, 1.4)])
    cost.observe(report(0, stale=1000))
    assert cost.steps == 2


def test_a_return_that_is_broken_off_costs_what_it_took_until_then():
    cost = SwitchCost()
    cost.observe(report(0, stale=300))
    cost.observe(report(3, caught_up=100, milliseconds=4, stale=200))
    cost.observe(report(0, stale=200))
    assert cost.returns == 1
    assert cost.seconds_per_return == pytest.approx(0.004)


def test_a_lasting_change_of_the_cost_is_followed():
    cost = SwitchCost()
    caught_up(cost, [(100, 5.0)] * 40)
    caught_up(cost, [(100, 10.0)] * 80)
    cost.observe(report(0, stale=100))
    assert cost.seconds == pytest.approx(0.010, rel=0.05)
