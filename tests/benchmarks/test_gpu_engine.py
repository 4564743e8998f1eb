"""What is made of the answers of GPU engines; the answers here are made up, the protocol is real."""

import os
from dataclasses import fields
from pathlib import Path

import pytest

from nightjar_api.engine.v1 import engine_pb2
from nightjar_benchmarks.goals import GOALS
from nightjar_benchmarks.gpu_engine import figures, measure
from nightjar_benchmarks.gpu_engine.control import Control
from nightjar_benchmarks.gpu_engine.pairs import SMALL, write_pair
from nightjar_benchmarks.gpu_engine.remote import Remote
from nightjar_benchmarks.gpu_engine.under_test import steady_parts
from nightjar_benchmarks.gpu_engine.watcher import STEP_FIELDS
from nightjar_engine_patch.control import ControlPlane
from nightjar_engine_patch.reports import StepRecord
from nightjar_engine_patch.step_measure import StepMeasure

MS = 1_000_000
ECHO = """
import sys
from nightjar_benchmarks.gpu_engine.under_test import main

class Echo:
    def __init__(self, arguments):
        self.start_seconds = arguments["start"]
        print("a library prints this", flush=True)

    def run(self, command):
        if command.get("die"):
            sys.exit("it died")
        if command.get("fail"):
            raise ValueError("no such thing")
        return {"heard": command}

    def close(self):
        pass

main(Echo)
"""


def row(**fields):
    return [fields.get(name, 0) for name in STEP_FIELDS]


def turns(ours, theirs, **parts):
    answer = {name: {"median": value} for name, value in parts.items()}
    return [
        {
            "nightjar": {"steady_ms": {"median": ours}, "tokens": 100, "seconds": ours, "acceptance_length": 2.8}
            | answer,
            "stock": {"steady_ms": {"median": theirs}, "tokens": 100, "seconds": theirs},
        }
    ]


def test_a_steady_ratio_is_stated_at_the_goals_acceptance_length_and_says_where_the_rest_goes():
    figure = figures.steady_ratio(turns(8.0, 5.0, forward_ms=4.9, draft_ms=3.0), gamma=3)
    assert figure.value == pytest.approx(2.8 * 5 / 8)
    assert figure.raw["parts_ms"] == {"forward_ms": 4.9, "draft_ms": 3.0, "rest_ms": pytest.approx(0.1)}
    assert figure.raw["limit"] == pytest.approx(2.8 * 5 / 7.9, abs=1e-4)
    assert figures.draft_step(turns(8.0, 5.0, draft_ms=3.0), gamma=3).value == 1.0


def test_whole_runs_are_compared_by_tokens_a_second():
    assert figures.whole_run_ratio(turns(2.0, 4.0), "nightjar", "stock").value == 2.0


def test_requests_with_other_tokens_are_counted():
    story = {"answers": [[1, 2], [3, 5]], "seconds": 1, "tokens": 4, "steps": 2, "preempted": 1}
    story["rows"] = [row(gamma_drafted=3), row(gamma_drafted=0), row(gamma_drafted=0)]
    found = figures.losslessness([story], [[[1, 2], [3, 4]]])
    assert (found["lossless_requests"].value, found["mismatched_requests"].value) == (2, 1)
    assert found["lossless_requests"].raw["changes_of_length"] == [1]


def speculating(accepted, catch_up_ms=0.0, **fields):
    usual = {"gamma_drafted": 3, "decode_batch": 1, "verified_tokens": 3, "forward_ns": 7 * MS, "draft_ns": 4 * MS}
    return row(**usual | {"accepted_tokens": accepted, "catch_up_ns": round(catch_up_ms * MS)} | fields)


def test_a_return_is_compared_with_what_was_before_and_with_its_neighbours():
    story = {
        "rows": [
            *[speculating(2)] * 30,
            *[row(gamma_drafted=0, decode_batch=1)] * 50,
            *[speculating(2, 5.5, catch_up_tokens=2000)] * 3,
            *[speculating(1)] * 40,
        ]
    }
    share = (3 * 2 + 40) / (43 * 3)
    assert figures.acceptance_recovery(story).value == pytest.approx(share / (2 / 3), abs=1e-4)
    plain = {"rows": [speculating(2, 10.0, catch_up_tokens=4000)]}
    found = figures.catch_up(story, plain)
    assert found["catch_up_step_ratio"].value == 1.5
    assert found["catch_up_cost_ratio"].value == pytest.approx(2.75 / 2.5)


def test_steady_steps_are_those_in_which_all_requests_verify_all_drafts():
    part = {"decode_batch": 2, "emitted_tokens": 5}
    full = row(verified_tokens=6, draft_ns=3 * MS, forward_ns=5 * MS, overhead_ns=9000, **part)
    rows = [row(verified_tokens=3, **part), full, full, full, row(verified_tokens=6, prefill_tokens=1, **part)]
    found = steady_parts(rows, batch=2, gamma=3)
    assert found["acceptance_length"] == 2.5
    assert (found["draft_ms"]["median"], found["draft_ms"]["count"]) == (3, 1)
    assert steady_parts(rows[:1], batch=2, gamma=3) == {}


class FakeEngine:
    """Answers like an engine under test that always gives the target's own tokens."""

    def __init__(self, pair):
        self.pair = pair
        self.commands = []

    def ask(self, **command):
        self.commands.append(command)
        gamma, batch = command["gamma"], len(command["prompts"])
        steady = {"median": 5.0 + gamma}
        answer = {"seconds": 1.0 + gamma, "tokens": 10, "steps": 3, "preempted": 0, "steady_ms": steady}
        answer |= {"acceptance_length": 2.8, "forward_ms": {"median": 5.0}, "draft_ms": {"median": 3.0}}
        if command.get("answers"):
            answer["answers"] = [
                measure.expected_continuation(self.pair, prompt, command["tokens"]) for prompt in command["prompts"]
            ]
        if command.get("rows"):
            paused = [row(gamma_drafted=0, decode_batch=batch)] * 50
            returning = [speculating(2, 4.0, catch_up_tokens=2048)] * 3
            answer["rows"] = [*[speculating(2)] * 30, *paused, *returning, *[speculating(2)] * 40]
        return answer


def test_every_figure_of_the_topic_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "STORY_REQUESTS", 3)
    pair = write_pair(tmp_path, SMALL)
    prompts = measure.Prompts(pair)
    engines = {name: FakeEngine(pair) for name in ("nightjar", "stock", "stock_gamma3")}
    found = measure.lossless(engines["nightjar"], pair)
    for batch in measure.WHOLE_RUNS:
        found |= measure.gamma0(engines, prompts, batch)
    for batch, gamma in measure.STEADY:
        found |= measure.steady(engines, prompts, batch, gamma)
    found |= measure.against_stock(engines, prompts)
    found |= measure.switch(engines["nightjar"], prompts)
    assert found["mismatched_requests"].value == 0
    assert set(found) == {goal.name for goal in GOALS if goal.topic == "gpu_engine"}


def test_an_engine_in_its_own_process_answers_in_order_and_says_what_failed_or_what_it_died_of(tmp_path, monkeypatch):
    (tmp_path / "echoing.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    engine = Remote("echo", {"start": 7}, tmp_path / "log", module="echoing")
    assert engine.receive() == {"start_seconds": 7}
    assert engine.ask(prompts=[[1]]) == {"heard": {"prompts": [[1]]}}
    with pytest.raises(RuntimeError, match=r"the engine 'echo' failed:\n(.|\n)*ValueError: no such thing"):
        engine.ask(fail=True)
    assert engine.ask(prompts=[]) == {"heard": {"prompts": []}}
    engine.send(die=True)
    with pytest.raises(RuntimeError, match=r"the engine 'echo' ended:\n(.|\n)*it died"):
        engine.receive()


def test_an_engine_ends_when_nobody_asks_any_more(tmp_path, monkeypatch):
    (tmp_path / "echoing.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    engine = Remote("echo", {"start": 7}, tmp_path / "log", module="echoing")
    engine.receive()
    engine.stop()
    assert Path(tmp_path / "log").read_text() == "a library prints this\n"


def test_reports_are_read_in_another_process_and_each_of_them_once(tmp_path):
    """From a real control plane."""
    path = tmp_path / "e.sock"
    plane = ControlPlane(path, engine_pb2.EngineInfo(gamma_max=5, max_batch=8), 64)
    control = Control(str(path))
    try:
        assert control.plan([[3, 2]], hold=1) == 1
        assert control.take() == []
        for step in (1, 2):
            plane.reports.append(record(step))
        rows = control.take()
        assert [row[STEP_FIELDS.index("step")] for row in rows] == [1, 2]
        assert {row[STEP_FIELDS.index("forward_ns")] for row in rows} == {700}
        assert control.take() == []
    finally:
        control.close()
        plane.close()


def record(step):
    zeros = {field.name: 0 for field in fields(StepRecord)}
    nothing = {"drafts": {}, "proposed": None, "row_of": {}, "lengths": [], "emitted": [], "drafted": (0, 0)}
    residency = engine_pb2.DRAFT_RESIDENCY_ON_DEVICE
    return StepRecord(
        **(zeros | nothing | {"step": step, "measure": StepMeasure(0, forward_ns=700), "residency": residency})
    )
