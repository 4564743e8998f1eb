import pytest

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_benchmarks.simulator.state import StepRow, by_position


def report(row):
    """The step report that the engine would send for the same step."""
    verified, accepted = by_position(row, int(row[3]))
    step = StepRow(*row[: len(StepRow._fields)])
    return StepReport(
        step=int(step.step),
        time_ns=round(step.now * 1e9),
        decode_batch=int(step.batch),
        prefill_tokens=int(step.own_prefill_tokens),
        recomputed_tokens=int(step.own_recomputed_tokens),
        gamma_verified=int(step.gamma),
        drafted_at_step=int(step.drafted_at_step),
        gamma_drafted=int(step.gamma_drafted),
        emitted_tokens=int(step.tokens),
        verified_tokens=sum(verified),
        verified_by_position=verified,
        accepted_by_position=accepted,
        forward_ns=round(step.forward_seconds * 1e9),
        draft_ns=round(step.own_draft_seconds * 1e9),
        catch_up_ns=round(step.catch_up_seconds * 1e9),
        catch_up_tokens=int(step.catch_up_tokens),
        stale_tokens=int(step.stale_tokens),
        running=1,
    )


@pytest.fixture
def report_of():
    return report
