"""`nightjar profile` on reports of a simulated engine, whose truth is known."""

import json
from dataclasses import replace

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from nightjar_api import gamma_table
from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.profile import measure, recording
from nightjar_benchmarks.profile.command import profile
from nightjar_benchmarks.simulator import step_times
from nightjar_benchmarks.simulator.arrivals import Chunk
from nightjar_benchmarks.simulator.machine import Machine
from nightjar_benchmarks.simulator.scenario import Condition, Scenario, tokens

TRUTH = replace(step_times.load("h200-7b"), noise=0.0, kv_s=0.0, draft_kv_s=0.0)


def together(requests):
    """A trace of so many short requests that come at once."""
    sizes = (np.zeros(requests), np.full(requests, 8), np.full(requests, 60), np.ones(requests, int))
    return Chunk(*sizes)


@pytest.fixture(scope="module")
def scenario():
    return Scenario(
        name="profiled",
        times=TRUTH,
        trace=lambda seed: iter([together(seed)]),
        mix=(0.0, 1.0, 0.0),
        prompt_per_output=8 / 60,
        metric="throughput",
    )


@pytest.fixture
def reports(scenario, report_of):
    """What engines report that serve 1 … 256 requests under γ = 0 and γ = 3, and return from 0 once."""
    found = []
    for batch in (1, 8, 64, 192, 256):
        for gamma in (0, 3):
            machine, step = Machine(scenario, batch), 0
            while machine.batch > 0:
                step += 1
                found.append(report_of(machine.advance(0 if gamma and step < 20 else gamma)))
    for number, report in enumerate(found, 1):
        offset = number - report.step
        report.step = number
        report.drafted_at_step += offset if report.drafted_at_step else 0
    return found


def test_measured_times_and_tokens_are_the_engines(reports, scenario):
    found = measure.profile(reports, "mine")
    times = step_times.parse(json.dumps(found.document), "mine")
    for gamma, batch in ((0, 1), (3, 1), (0, 64), (3, 64), (0, 192)):
        assert times.forward[gamma, batch] == pytest.approx(TRUTH.forward[gamma, batch], rel=0.05)
        assert times.draft[gamma, batch] == pytest.approx(TRUTH.draft[gamma, batch], rel=0.1)
    assert times.catch_up_token_s == pytest.approx(TRUTH.catch_up_token_s, rel=0.1)
    assert found.tokens == pytest.approx(tokens(scenario, Condition())[:4], rel=0.05)


def test_the_table_speculates_where_it_pays(reports):
    found = measure.profile(reports, "mine")
    entries = measure.table(step_times.parse(json.dumps(found.document), "mine"), found.tokens, 256)
    assert gamma_table.check(entries) == entries
    assert entries[0].gamma > 0
    assert entries[-1].gamma == 0


def test_reports_of_one_length_are_refused_with_what_to_do(reports):
    plain = [report for report in reports if not report.gamma_verified]
    with pytest.raises(ConfigurationError, match=r"at another gamma, are required, found gammas \[0\]; serve"):
        measure.profile(plain, "mine")


def test_recorded_reports_are_read_back(reports, tmp_path):
    recording.write(tmp_path / "kept" / "steps.jsonl", reports)
    assert recording.read(tmp_path / "kept" / "steps.jsonl") == reports


def test_a_line_that_is_no_report_is_refused_with_its_number(reports, tmp_path):
    path = tmp_path / "steps.jsonl"
    recording.write(path, reports[:2])
    path.write_text(path.read_text() + '{"stop": 3}\n')
    with pytest.raises(ConfigurationError, match="line 3: a step report as JSON is required"):
        recording.read(path)


def run(*arguments):
    app = typer.Typer()
    app.command()(profile)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_writes_step_times_and_prints_a_planner(reports, tmp_path):
    recording.write(tmp_path / "steps.jsonl", reports)
    result = run("--reports", str(tmp_path / "steps.jsonl"), "--out", str(tmp_path / "times.json"))
    assert result.exit_code == 0, result.output
    assert "policy: static-table" in result.output
    assert step_times.load(str(tmp_path / "times.json")).gamma_max == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "either --engine-socket or --reports"), (["--reports", "missing.jsonl"], "a readable file of step reports")],
)
def test_the_command_refuses_with_a_reason(arguments, message):
    result = run(*arguments)
    assert result.exit_code == 1
    assert message in " ".join(result.output.split())
