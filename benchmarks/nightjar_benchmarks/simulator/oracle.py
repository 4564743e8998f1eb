"""What somebody would choose who knows the simulator's truth: per phase, the best length for each batch.

Myopic: the least expected time per token of a request, the draft's reading of prompts included; what a
return costs is not weighed, so with cheap returns it is hard to beat and with dear ones it is no bound.
"""

import numpy as np

from nightjar_benchmarks.simulator.scenario import Condition, Scenario, tokens
from nightjar_benchmarks.simulator.state import MAX_BATCH, MAX_PHASES, Floats, Ints


def costs(scenario: Scenario, condition: Condition) -> Floats:
    """Expected seconds per token of one request, [γ, batch]; column 0 is of no use."""
    times, gammas = scenario.times, scenario.engine.gamma_max + 1
    batch = np.arange(MAX_BATCH + 1)
    context = (scenario.mean_context - times.base_context) * batch
    drafting = times.draft[:gammas] + np.arange(gammas)[:, None] * times.draft_kv_s * context
    forward = times.forward[:gammas] + times.kv_s * context
    seconds = condition.forward * forward + condition.draft * drafting + times.host_s
    got = tokens(scenario, condition)[:, None]
    # The draft reads every prompt; prompts of one step share the start of its catch-up.
    prompts = batch * got / scenario.mean_output
    reading = times.catch_up_start_s * -np.expm1(-prompts) + times.catch_up_token_s * scenario.prompt_per_output * (
        batch * got
    )
    seconds[1:] += condition.draft * reading[1:]
    per_token: Floats = seconds / got
    return per_token


def table(scenario: Scenario) -> Ints:
    """The best γ, [phase, batch]."""
    found = np.zeros((MAX_PHASES, MAX_BATCH + 1), np.int64)
    for phase, condition in enumerate(scenario.conditions):
        found[phase, 1:] = costs(scenario, condition)[:, 1:].argmin(axis=0)
    return found
