"""What happened lately, as people read it."""

from nightjar_api.engine.v1 import engine_pb2
from nightjar_sidecar.events import Events
from nightjar_sidecar.telemetry import changes


def report(**fields):
    return engine_pb2.StepReport(**fields)


def test_the_latest_event_comes_first_and_each_kind_is_bounded():
    events = Events()
    events.add("settings", "revision one is in force", 0.0)
    for number in range(200):
        events.add("gamma", f"γ 0 → {number}", float(number))
    assert events.latest_first[0].message == "γ 0 → 199"
    # What changes often does not drive out what seldom does.
    assert [event.kind for event in events.latest_first] == ["gamma"] * 20 + ["settings"]


def test_what_repeats_within_a_minute_is_one_event_that_counts():
    events = Events()
    for at in range(10):
        events.add("gamma", "γ 3 → 0", float(at))
        events.add("gamma", "γ 0 → 3", at + 0.5)
    assert [(event.message, event.count, event.at) for event in events.latest_first] == [
        ("γ 0 → 3", 10, 9.5),
        ("γ 3 → 0", 10, 9.0),
    ]
    assert events.latest_first[0].number == 20


def test_what_repeats_later_is_an_event_of_its_own():
    events = Events()
    events.add("engine", "connected", 0.0)
    events.add("engine", "connected", 61.0)
    assert [event.count for event in events.latest_first] == [1, 1]


def test_changes_between_two_steps_are_told_in_words():
    on_device, leaving = engine_pb2.DRAFT_RESIDENCY_ON_DEVICE, engine_pb2.DRAFT_RESIDENCY_LEAVING
    last = report(gamma_drafted=3, plan_version=7, draft_residency=on_device)
    told = list(changes(last, report(gamma_drafted=0, plan_version=0, draft_residency=leaving)))
    assert told == [
        ("gamma", "γ 3 → 0"),
        ("plan", "no plan in force any more: the engine uses its fallback length"),
        ("memory", "the draft is leaving: its memory goes to the KV cache"),
    ]
    assert list(changes(report(), report(plan_version=1))) == [("plan", "the engine obeys a plan")]


def test_the_first_step_and_one_like_the_last_change_nothing():
    step = report(gamma_drafted=3, plan_version=7)
    assert list(changes(None, step)) == []
    assert list(changes(step, step)) == []
