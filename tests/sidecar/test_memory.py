"""When the draft's memory should serve as KV cache."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api.engine.v1.engine_pb2 import (
    DRAFT_RESIDENCY_AWAY,
    DRAFT_RESIDENCY_LEAVING,
    DRAFT_RESIDENCY_ON_DEVICE,
    DRAFT_RESIDENCY_RETURNING,
    ElasticProgress,
    EngineInfo,
    StepReport,
)
from nightjar_api.memory import MemorySpec
from nightjar_sidecar.memory import Change, MemoryPolicy

BLOCKS, DRAFT_BLOCKS = 200, 50
SHORT, LOW = 19, 20


def policy(residency=DRAFT_RESIDENCY_ON_DEVICE, **spec):
    """A policy with τ_low at 20 blocks that is connected to an engine."""
    made = MemoryPolicy(MemorySpec.model_validate({"elastic": True, "dwell": "10s"} | spec, by_name=True))
    made.connected(EngineInfo(blocks=BLOCKS, draft_residency=residency))
    return made


def step(free, *, gamma=0, batch=4, waiting=0, total=BLOCKS, residency=DRAFT_RESIDENCY_ON_DEVICE):
    return StepReport(
        decode_batch=batch,
        gamma_drafted=gamma,
        free_blocks=free,
        total_blocks=total,
        waiting=waiting,
        draft_residency=residency,
    )


def wanted(policy, now=100.0):
    policy.consider(now)
    return policy.wanted


def short(policy, steps=3):
    for _ in range(steps):
        policy.observe(step(SHORT))
    return policy


def away(**spec):
    return policy(DRAFT_RESIDENCY_AWAY, **spec)


def away_step(free, **values):
    return step(free, total=BLOCKS + DRAFT_BLOCKS, residency=DRAFT_RESIDENCY_AWAY, **values)


def done(policy, change, now, residency):
    policy.carried_out(change, ElasticProgress(draft_residency=residency, elapsed_ns=7_000_000, moved_blocks=3), now)


def test_a_share_is_one_of_the_blocks_at_the_engines_start():
    assert policy().low_blocks == LOW
    assert policy(tau_low="33%").low_blocks == 66
    assert policy(tau_low=7).low_blocks == 7


def test_the_cache_expands_after_enough_steps_in_a_row_that_were_short_without_speculation():
    one = policy()
    for free in (SHORT, SHORT, LOW, SHORT, SHORT):
        one.observe(step(free))
        assert wanted(one) is None
    one.observe(step(SHORT))
    assert wanted(one) is Change.EXPAND


def test_a_step_that_drafted_begins_the_count_anew():
    one = short(policy(), 2)
    one.observe(step(SHORT, gamma=1))
    assert wanted(short(one, 2)) is None
    assert wanted(short(one, 1)) is Change.EXPAND


def test_steps_of_prompts_alone_say_nothing_about_the_plan():
    one = short(policy(), 2)
    for _ in range(5):
        one.observe(step(SHORT, batch=0))
    assert wanted(one) is None
    assert wanted(short(one, 1)) is Change.EXPAND


@pytest.mark.parametrize("spec", [{"elastic": False}, {"persist_steps": 4}, {"tau_low": 19}])
def test_the_settings_decide(spec):
    assert wanted(short(policy(**spec))) is None


def test_an_engine_without_elastic_memory_is_never_asked():
    one = policy()
    one.connected(EngineInfo(blocks=BLOCKS, elastic_unsupported_reason="no pool"))
    assert wanted(short(one)) is None
    assert one.unsupported_reason == "no pool"


def test_the_draft_returns_when_nothing_waits_and_the_room_is_more_than_it_takes():
    one = away()
    for report in (away_step(DRAFT_BLOCKS + LOW), away_step(200, waiting=1)):
        one.observe(report)
        assert wanted(one) is None
    one.observe(away_step(DRAFT_BLOCKS + LOW + 1))
    assert wanted(one) is Change.SQUEEZE


def test_switched_off_the_draft_returns_as_soon_as_it_fits():
    one = away(elastic=False, dwell="1h")
    one.observe(away_step(DRAFT_BLOCKS - 1))
    assert wanted(one) is None
    one.observe(away_step(DRAFT_BLOCKS))
    assert wanted(one) is Change.SQUEEZE


def test_between_two_changes_lies_the_dwell_time_even_if_no_step_follows():
    one = short(policy())
    assert wanted(one, 100.0) is Change.EXPAND
    done(one, Change.EXPAND, 100.0, DRAFT_RESIDENCY_AWAY)
    assert one.seconds_to_change(101.0) is None, "nothing is known since"
    one.observe(away_step(200))
    assert wanted(one, 109.9) is None
    assert one.seconds_to_change(109.0) == pytest.approx(1.0)
    assert wanted(one, 110.0) is Change.SQUEEZE


def test_reports_from_before_a_change_are_not_mistaken_for_what_is_now():
    one = policy(dwell="0s")
    assert wanted(short(one)) is Change.EXPAND
    done(one, Change.EXPAND, 100.0, DRAFT_RESIDENCY_AWAY)
    one.observe(step(150))
    assert wanted(one) is None
    one.observe(away_step(150))
    assert wanted(one) is Change.SQUEEZE


def test_what_reports_say_later_is_believed():
    one = policy(DRAFT_RESIDENCY_LEAVING)
    one.observe(away_step(30))
    assert one.residency == DRAFT_RESIDENCY_AWAY
    one.observe(step(30))
    assert one.may_speculate


def test_what_is_refused_is_wanted_again_after_a_moment():
    one = short(policy())
    assert wanted(one, 100.0) is Change.EXPAND
    one.refused("expand: because", 100.0)
    assert one.refusal == "expand: because"
    assert wanted(one, 100.4) is None
    assert wanted(one, 100.5) is Change.EXPAND
    done(one, Change.EXPAND, 101.0, DRAFT_RESIDENCY_AWAY)
    assert one.refusal is None


def test_what_was_done_is_remembered():
    one = short(policy())
    done(one, Change.EXPAND, 100.0, DRAFT_RESIDENCY_AWAY)
    assert (one.done.change, one.done.at, one.done.moved_blocks) == (Change.EXPAND, 100.0, 3)
    assert one.done.seconds == pytest.approx(7e-3)
    assert one.short_steps == 0


def test_nothing_may_be_speculated_from_the_wish_to_expand_until_the_draft_is_back():
    one = short(policy())
    assert one.may_speculate
    assert wanted(one) is Change.EXPAND
    assert not one.may_speculate
    done(one, Change.EXPAND, 100.0, DRAFT_RESIDENCY_AWAY)
    one.observe(away_step(200))
    assert not one.may_speculate
    assert wanted(one, 200.0) is Change.SQUEEZE
    assert not one.may_speculate
    done(one, Change.SQUEEZE, 200.0, DRAFT_RESIDENCY_ON_DEVICE)
    assert one.may_speculate


@pytest.mark.parametrize("residency", [DRAFT_RESIDENCY_LEAVING, DRAFT_RESIDENCY_AWAY, DRAFT_RESIDENCY_RETURNING])
def test_a_new_sidecar_learns_that_the_draft_is_away(residency):
    assert not policy(residency).may_speculate


def test_an_engine_that_does_not_say_where_its_draft_is_may_speculate():
    one = policy()
    one.connected(EngineInfo(blocks=BLOCKS))
    assert one.may_speculate


@given(
    st.lists(
        st.tuples(st.floats(0, 3), st.integers(0, 300), st.integers(0, 1), st.integers(0, 1), st.booleans()),
        max_size=60,
    )
)
def test_whatever_happens_the_memory_does_not_flap_and_changes_alternate(steps):
    one = policy(dwell="5s")
    now, changes = 0.0, []
    for pause, free, gamma, waiting, is_refused in steps:
        now += pause
        is_away = one.residency == DRAFT_RESIDENCY_AWAY
        report = (away_step if is_away else step)(free, gamma=gamma, waiting=waiting)
        one.observe(report)
        change = wanted(one, now)
        if change is None:
            continue
        assert change is (Change.SQUEEZE if is_away else Change.EXPAND)
        assert free > DRAFT_BLOCKS + LOW or not is_away
        if is_refused:
            one.refused("no", now)
            continue
        done(one, change, now, DRAFT_RESIDENCY_ON_DEVICE if is_away else DRAFT_RESIDENCY_AWAY)
        changes.append(now)
    assert all(later - earlier >= 5 for earlier, later in pairwise(changes))
