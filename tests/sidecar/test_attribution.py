import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_sidecar.attribution import Attribution

MS = 1_000_000


def report(step, **values):
    defaults = {"decode_batch": 4, "emitted_tokens": 4, "forward_ns": 10 * MS, "running": 4}
    return StepReport(step=step, time_ns=step * 20 * MS, **(defaults | values))


def test_a_round_costs_the_drafting_of_one_step_and_the_forward_pass_of_the_next():
    attribution = Attribution()
    attribution.round(report(1, gamma_drafted=3, draft_ns=3 * MS, forward_ns=50 * MS))
    round_ = attribution.round(
        report(
            2,
            gamma_verified=3,
            drafted_at_step=1,
            gamma_drafted=1,
            draft_ns=1 * MS,
            emitted_tokens=9,
            verified_by_position=[4, 4, 4],
            accepted_by_position=[3, 2, 0],
        )
    )
    assert round_.gamma == 3
    assert round_.seconds == pytest.approx(0.013)
    assert (round_.tokens, round_.batch) == (9, 4)
    assert (round_.verified, round_.accepted) == ((4, 4, 4), (3, 2, 0))
    assert round_.typical


def test_with_async_scheduling_the_drafting_step_may_lie_further_back():
    attribution = Attribution()
    attribution.round(report(1, gamma_drafted=3, draft_ns=3 * MS))
    attribution.round(report(2, gamma_drafted=1, draft_ns=1 * MS))
    third = attribution.round(report(3, gamma_verified=3, drafted_at_step=1, verified_by_position=[4, 4, 4]))
    assert third.draft_seconds == pytest.approx(0.003)


def test_a_step_that_verifies_nothing_is_a_round_of_its_forward_pass_alone():
    attribution = Attribution()
    round_ = attribution.round(report(1, gamma_drafted=3, draft_ns=3 * MS))
    assert (round_.gamma, round_.seconds) == (0, pytest.approx(0.010))


def test_a_round_whose_drafting_step_was_dropped_is_no_round():
    attribution = Attribution()
    attribution.round(report(1, gamma_drafted=3))
    assert attribution.round(report(7, gamma_verified=3, drafted_at_step=6)) is None
    assert attribution.unattributed == 1


def test_a_step_that_emits_nothing_is_no_round_but_its_prompt_tokens_are_counted():
    attribution = Attribution()
    prompts_alone = report(1, decode_batch=0, prefill_tokens=512, recomputed_tokens=200, emitted_tokens=0)
    assert attribution.round(prompts_alone) is None
    second = attribution.round(report(2, prefill_tokens=100, recomputed_tokens=30))
    assert (second.prompt_tokens, second.recomputed_tokens) == (612, 230)
    third = attribution.round(report(3))
    assert (third.prompt_tokens, third.recomputed_tokens) == (0, 0)


@pytest.mark.parametrize("step_with_prompt", [1, 2])
def test_a_prompt_in_the_drafting_or_the_verifying_step_makes_a_round_untypical(step_with_prompt):
    attribution = Attribution()
    prompt = {step_with_prompt: {"prefill_tokens": 100}}
    attribution.round(report(1, gamma_drafted=1, **prompt.get(1, {})))
    round_ = attribution.round(
        report(2, gamma_verified=1, drafted_at_step=1, verified_by_position=[4], **prompt.get(2, {}))
    )
    assert round_.mixed
    assert not round_.typical


def test_a_few_prompt_tokens_leave_a_round_typical_and_are_told():
    attribution = Attribution()
    round_ = attribution.round(report(1, decode_batch=100, prefill_tokens=10))
    assert round_.typical
    assert round_.prefill_tokens == 10


def test_a_round_in_which_few_requests_had_drafts_is_untypical():
    attribution = Attribution()
    attribution.round(report(1, gamma_drafted=2))
    round_ = attribution.round(report(2, gamma_verified=2, drafted_at_step=1, verified_by_position=[1, 1]))
    assert not round_.typical


def test_catch_up_is_apart_from_the_time_of_a_round():
    attribution = Attribution()
    round_ = attribution.round(report(1, gamma_drafted=2, catch_up_ns=30 * MS, catch_up_tokens=100))
    assert round_.seconds == pytest.approx(0.010)
    assert round_.catch_up_seconds == pytest.approx(0.030)


def test_time_between_steps_in_which_no_model_works_is_the_hosts():
    attribution = Attribution()
    attribution.round(report(1))
    assert attribution.round(report(2)).host_seconds == pytest.approx(0.010)


@pytest.mark.parametrize(("running", "step"), [(0, 2), (4, 3)])
def test_time_after_an_idle_engine_or_a_gap_is_nobodys(running, step):
    attribution = Attribution()
    attribution.round(report(1, running=running))
    assert attribution.round(report(step)).host_seconds is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=300))
def test_memory_is_bounded_and_every_report_of_a_gapless_stream_becomes_a_round(gammas):
    attribution = Attribution()
    drafted = (0, 0)
    for step, gamma in enumerate(gammas, start=1):
        at, verified = drafted
        round_ = attribution.round(
            report(step, gamma_verified=verified, drafted_at_step=at, gamma_drafted=gamma, draft_ns=gamma * MS)
        )
        assert round_.gamma == verified
        assert round_.draft_seconds == pytest.approx(verified * 0.001)
        drafted = (step, gamma) if gamma else (0, 0)
    assert len(attribution._drafting) <= 64
