"""The simulated engine keeps what a real one keeps: blocks, order, and its own reports."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_benchmarks.simulator import arrivals, driver, step_times
from nightjar_benchmarks.simulator.arrivals import Chunk, Piece
from nightjar_benchmarks.simulator.lengths import SHAREGPT
from nightjar_benchmarks.simulator.machine import Machine
from nightjar_benchmarks.simulator.scenario import Condition, Elastic, Engine, Scenario, tokens
from nightjar_benchmarks.simulator.state import MAX_BATCH, MAX_PHASES, StepRow
from nightjar_sidecar.attribution import Attribution
from nightjar_sidecar.policies.fixed import Fixed

TIMES = step_times.load("h200-7b")


def scenario(requests=200, rate=40.0, engine=None, **more):
    load = [Piece(rate, requests)]
    return Scenario(
        name="test",
        times=replace(TIMES, noise=more.pop("noise", 0.0)),
        trace=more.pop("trace", lambda seed: arrivals.poisson(load, SHAREGPT, seed)),
        mix=(0.3, 0.5, 0.2),
        prompt_per_output=0.5,
        metric="throughput",
        engine=engine or Engine(),
        **more,
    )


def table(gamma):
    return np.full((MAX_PHASES, MAX_BATCH + 1), gamma, np.int64)


def one_request(prompt, output):
    """A trace of a single request at time 0."""
    return lambda seed: iter([Chunk(np.zeros(1), *(np.array([value]) for value in (prompt, output, 0)))])


def test_the_same_seed_gives_the_same_run_to_the_digit():
    one, other = (driver.follow(scenario(noise=0.02), table(3), 7) for _ in range(2))
    assert replace(one, wall_seconds=0.0) == replace(other, wall_seconds=0.0)
    assert driver.follow(scenario(noise=0.02), table(3), 8).all != one.all


def test_the_noise_of_steps_can_change_while_the_trace_stays():
    one, other = (driver.follow(scenario(noise=0.02), table(3), 7, noise_seed=seed) for seed in (1, 2))
    assert one.all.tokens == other.all.tokens
    assert one.simulated_seconds != other.simulated_seconds
    assert one.simulated_seconds == pytest.approx(other.simulated_seconds, rel=0.02)


def test_every_token_that_was_asked_for_is_given_out_once():
    asked = sum(int(chunk.output.sum()) for chunk in scenario().trace(0))
    for gamma in (0, 3, 5):
        outcome = driver.follow(scenario(), table(gamma), 0)
        assert outcome.all.tokens == asked
        assert outcome.finished == 200


@settings(deadline=None, max_examples=15)
@given(
    gammas=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    blocks=st.integers(130, 600),
    max_batch=st.integers(1, 64),
    elastic=st.booleans(),
)
def test_no_block_is_lost_whatever_happens(gammas, blocks, max_batch, elastic):
    engine = Engine(blocks=blocks, max_batch=max_batch, token_budget=256)
    room = Elastic(draft_blocks=40, tau_low=30, dwell_s=0.0) if elastic else None
    machine = Machine(scenario(60, 100.0, engine, elastic=room), 1)
    state = machine.state
    step = 0
    while machine.batch > 0:
        assert machine.batch <= max_batch
        machine.advance(gammas[step % len(gammas)])
        held = int(state["blocks"][0][state["order"][0][: int(state["running"][0])]].sum())
        assert held + int(state["free_blocks"][0]) == int(state["total_blocks"][0])
        step += 1
    assert int(state["finished"][0]) == 60


def test_requests_are_sent_back_when_blocks_run_short_and_still_finish():
    tight = driver.follow(scenario(engine=Engine(blocks=300)), table(0), 0)
    assert tight.preemptions > 0
    assert tight.finished == 200
    assert driver.follow(scenario(), table(0), 0).preemptions == 0


def test_what_is_read_again_is_what_was_sent_back():
    """All prompts are read once; what is more was counted as read again."""
    crowd = scenario(engine=Engine(blocks=300))
    machine, read, again = Machine(crowd, 0), 0.0, 0.0
    while machine.batch > 0:
        row = StepRow(*machine.advance(0)[: len(StepRow._fields)])
        read += row.prompt_tokens
        again += row.recomputed_tokens
    prompts = sum(int(chunk.prompt.sum()) for chunk in crowd.trace(0))
    assert machine.state["preemptions"][0] > 0
    assert 0 < again < read
    # The last token of a prompt emits, so it counts as decoded.
    assert read - again == prompts - 200


def test_a_request_that_can_never_fit_is_refused_with_a_reason():
    with pytest.raises(ValueError, match="a KV pool that holds the longest request is required"):
        driver.follow(scenario(trace=one_request(200, 100), engine=Engine(blocks=5)), table(0), 0)


def test_a_step_takes_what_the_table_says():
    outcome = driver.follow(scenario(trace=one_request(1, 1000)), table(0), 0)
    assert outcome.all.throughput == pytest.approx(1 / TIMES.seconds(0, 1), rel=0.01)


def test_tokens_per_round_are_those_that_acceptance_promises():
    drafting = scenario(2000, 10.0, noise=0.0)
    machine = Machine(drafting, 0)
    rounds = given = 0.0
    while machine.batch > 0:
        row = StepRow(*machine.advance(3)[: len(StepRow._fields)])
        full = row.gamma == 3 and row.prompt_tokens == 0
        rounds += row.batch * full
        given += row.tokens * full
    assert given / rounds == pytest.approx(tokens(drafting, Condition())[3], rel=0.05)


def test_after_a_spell_without_drafts_requests_catch_up_before_they_draft():
    machine = Machine(scenario(trace=one_request(2000, 800)), 0)
    for _ in range(100):
        machine.advance(0)
    rows = [StepRow(*machine.advance(3)[: len(StepRow._fields)]) for _ in range(6)]
    assert [row.catch_up_tokens for row in rows[:4]] == [512, 512, 512, 512]
    assert rows[0].stale_tokens > rows[3].stale_tokens > 0
    assert rows[4].catch_up_tokens < 512
    assert [row.own_draft_seconds > 0 for row in rows] == [False] * 4 + [True] * 2
    assert [row.gamma for row in rows] == [0] * 5 + [3]


def test_a_draft_that_is_away_does_not_draft_and_its_blocks_are_lent():
    engine = Engine(blocks=700)
    fixed = scenario(400, 100.0, engine)
    lent = replace(fixed, elastic=Elastic(draft_blocks=300, tau_low=100))
    assert driver.follow(lent, table(0), 0).expansions > 0
    assert driver.follow(lent, table(0), 0).preemptions < driver.follow(fixed, table(0), 0).preemptions
    assert driver.follow(lent, table(3), 0).expansions == 0


def test_conditions_hold_from_their_start():
    changing = scenario(400, 20.0, conditions=(Condition(), Condition(8.0, acceptance=0.2, forward=2.0)))
    before, after = driver.follow(changing, table(3), 0).phases
    assert before.tokens / before.decoding > 1.5 * after.tokens / after.decoding


def test_rounds_are_those_that_the_sidecar_makes_of_the_same_reports(report_of):
    machine, attribution, step = Machine(scenario(noise=0.02), 0), Attribution(), 0
    compared = 0
    while machine.batch > 0:
        row = machine.advance((0, 3, 3, 1, 5)[step // 3 % 5])
        step += 1
        round_ = attribution.round(report_of(row))
        ours = driver.round_of(row)
        # A step that only read prompts is executed on the way and not handed out, so what it drafted for is unknown.
        if round_ is None or round_.prompt_tokens != ours.prompt_tokens:
            continue
        compared += 1
        for name in ("step", "batch", "gamma", "tokens", "verified", "accepted", "prefill_tokens", "recomputed_tokens"):
            assert getattr(round_, name) == getattr(ours, name), name
        assert round_.draft_seconds == pytest.approx(ours.draft_seconds, abs=2e-9)
        assert round_.prefill_share == pytest.approx(ours.prefill_share)
    assert compared > 0.9 * step


def test_driving_a_fixed_length_is_following_its_table():
    driven, followed = driver.drive(scenario(), Fixed(2), 3), driver.follow(scenario(), table(2), 3)
    assert driven.all == followed.all
    assert driven.warm == followed.warm


def test_memory_does_not_grow_with_the_trace():
    short, long = (Machine(scenario(requests, 50.0), 0) for requests in (100, 40_000))
    long.follow(table(2))
    assert long.state.nbytes == short.state.nbytes
    assert int(long.state["finished"][0]) == 40_000
