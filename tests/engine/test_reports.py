"""The queue between the scheduler, which never waits, and one reader."""

import threading
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nightjar_api.engine.v1 import engine_pb2
from nightjar_engine_patch.reports import LateTimes, ReportQueue, StepRecord, acceptance, to_message
from nightjar_engine_patch.step_measure import StepMeasure

NOW = 0.0


def steps(taken):
    return [record.step for record in taken[0]]


def append(queue, make_record, *numbers):
    for number in numbers:
        queue.append(make_record(number))


def test_nothing_is_kept_before_somebody_reads(make_record):
    queue = ReportQueue(16)
    append(queue, make_record, 1, 2)
    assert queue.take(queue.open(), NOW) == ([], 0)


def test_a_reader_gets_every_record_once_in_order(make_record):
    queue = ReportQueue(16)
    reader = queue.open()
    append(queue, make_record, 1, 2, 3)
    assert steps(queue.take(reader, NOW)) == [1, 2, 3]
    append(queue, make_record, 4)
    assert steps(queue.take(reader, NOW)) == [4]
    assert queue.take(reader, NOW) == ([], 0)


def test_the_oldest_go_and_are_counted_for_the_whole_call(make_record):
    queue = ReportQueue(16)
    reader = queue.open()
    append(queue, make_record, *range(1, 20))
    records, dropped = queue.take(reader, NOW)
    assert ([record.step for record in records], dropped) == (list(range(4, 20)), 3)
    append(queue, make_record, *range(20, 37))
    records, dropped = queue.take(reader, NOW)
    assert (records[0].step, len(records), dropped) == (21, 16, 4)


def test_a_new_reader_starts_from_now_and_ends_the_one_before(make_record):
    queue = ReportQueue(16)
    first = queue.open()
    append(queue, make_record, *range(1, 30))
    second = queue.open()
    append(queue, make_record, 30)
    assert queue.take(first, NOW) is None
    taken = queue.take(second, NOW)
    assert (steps(taken), taken[1]) == ([30], 0)


def test_a_waiting_reader_ends_at_once_when_it_is_replaced_or_the_queue_closes():
    queue = ReportQueue(16)
    for end in (queue.open, queue.close):
        reader = queue.open()
        taken = []
        waiting = threading.Thread(target=lambda reader=reader, taken=taken: taken.append(queue.take(reader, 600)))
        waiting.start()
        end()
        waiting.join(120)
        assert taken == [None]


def test_a_closed_queue_gives_nothing_to_anybody(make_record):
    queue = ReportQueue(16)
    reader = queue.open()
    queue.close()
    append(queue, make_record, 1)
    assert queue.take(reader, NOW) is None
    assert queue.take(queue.open(), NOW) is None


MEASURE = StepMeasure(
    draft_weight_bytes=1,
    draft_ns=200,
    catch_up_ns=30,
    catch_up_tokens=7,
    stale_tokens=9,
    bookkeeping_ns=1,
    elastic_ns=30,
)
# Row 0 had all three drafts accepted and was cut at its end, row 1 one of two, row 2 joined without drafts.
STEP = StepRecord(
    step=12,
    time_ns=10_000,
    step_ns=1_000,
    decode_batch=3,
    scheduled_tokens=4 + 3 + 60,
    recomputed_tokens=40,
    drafts={"a": [5, 6, 7], "b": [5, 6]},
    proposed=None,
    row_of={"a": 0, "b": 1, "c": 2},
    lengths=[4, 2, 1],
    emitted=[[5, 6], [5, 9], [8]],
    drafted=(11, 3),
    gamma=2,
    measure=MEASURE,
    free_blocks=21,
    total_blocks=22,
    running=23,
    waiting=24,
    plan_version=25,
    elastic_ns=50,
    residency=engine_pb2.DRAFT_RESIDENCY_RETURNING,
    overhead_ns=26,
)


def test_a_message_says_what_the_step_verified_emitted_and_cost():
    message = to_message(STEP)
    assert list(message.verified_by_position) == [2, 2, 1]
    assert list(message.accepted_by_position) == [2, 1, 1]
    assert (message.verified_tokens, message.accepted_tokens, message.emitted_tokens) == (5, 4, 5)
    assert (message.drafted_at_step, message.gamma_verified, message.gamma_drafted) == (11, 3, 2)
    assert (message.forward_ns, message.draft_ns, message.catch_up_ns, message.step_ns) == (720, 200, 30, 1_000)
    assert (message.prefill_tokens, message.recomputed_tokens) == (59, 40)


def test_what_only_filled_up_the_batch_counts_as_no_draft_even_if_it_was_right():
    filled = replace(STEP, proposed={"b"})
    message = to_message(filled)
    assert list(message.verified_by_position) == [1, 1]
    assert list(message.accepted_by_position) == [1, 0]
    assert (message.emitted_tokens, message.prefill_tokens) == (5, 59)
    nobody = to_message(replace(STEP, proposed=set()))
    assert (nobody.verified_tokens, nobody.gamma_verified, nobody.drafted_at_step) == (0, 3, 11)
    alone = to_message(replace(STEP, drafts={}, lengths=[]))
    assert (alone.verified_tokens, alone.gamma_verified, alone.drafted_at_step) == (0, 0, 0)


def on_device(step, before=None):
    """A record whose forward pass the device timed, and which tells about the step before."""
    return replace(STEP, step=step, measure=StepMeasure(1, forward_ns=700, before=before))


def test_a_step_that_the_device_times_is_reported_with_what_the_next_one_tells():
    given = []
    late = LateTimes(given.append)
    late.append(on_device(1), is_last=False)
    assert given == []
    late.append(on_device(2, before=(200, 30)), is_last=False)
    late.append(on_device(3, before=(0, 0)), is_last=True)
    found = [(record.step, record.measure.draft_ns, record.measure.catch_up_ns) for record in given]
    assert found == [(1, 200, 30), (2, 0, 0), (3, 0, 0)]
    assert to_message(given[0]).forward_ns == 700


def test_a_step_that_the_host_times_is_reported_at_once():
    given = []
    LateTimes(given.append).append(STEP, is_last=False)
    assert given == [STEP]


def test_a_step_in_which_our_code_was_kept_waiting_for_seconds_is_told_like_any_other():
    assert to_message(replace(STEP, overhead_ns=8_000_000_000)).overhead_ns == 8_000_000_000


def test_a_message_leaves_no_field_out():
    unset = {field.name for field in engine_pb2.StepReport.DESCRIPTOR.fields} - {
        field.name for field, _ in to_message(STEP).ListFields()
    }
    assert not unset


def test_a_step_that_verified_nothing_names_no_drafting_step(make_record):
    message = to_message(make_record(5, drafted=(4, 3), decode_batch=2, emitted=[[1], [2]], lengths=[]))
    assert (message.drafted_at_step, message.gamma_verified, message.verified_tokens) == (0, 0, 0)
    assert message.emitted_tokens == 2


DRAFTED_AND_PASSED = st.integers(1, 5).flatmap(lambda drafts: st.tuples(st.just(drafts), st.integers(0, drafts)))


@given(st.lists(DRAFTED_AND_PASSED))
def test_acceptance_counts_each_position_once_for_each_request(requests):
    drafts = {str(row): [0] * proposed for row, (proposed, _) in enumerate(requests)}
    lengths = [passed + 1 for _, passed in requests]
    verified, accepted = acceptance(drafts, lengths, {name: int(name) for name in drafts})
    assert verified == [sum(proposed > i for proposed, _ in requests) for i in range(len(verified))]
    assert accepted == [sum(passed > i for _, passed in requests) for i in range(len(verified))]
    assert sum(accepted) == sum(passed for _, passed in requests)
