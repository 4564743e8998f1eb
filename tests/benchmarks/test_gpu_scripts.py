"""The scripts that measure on a GPU, as far as they come without one."""

import importlib
import json
import runpy
import sys
from pathlib import Path

import pytest

from nightjar_benchmarks.records import Figure

FOLDER = Path(__file__).parents[2] / "benchmarks" / "gpu"


@pytest.fixture(autouse=True)
def _scripts_find_each_other(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.mark.parametrize("name", ["engine", "elastic", "fused_draft"])
def test_a_script_says_what_it_can_measure(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / f"{name}.py"), run_name="__main__")
    assert ended.value.code == 0
    assert "--parts {" in capsys.readouterr().out


@pytest.fixture
def run(tmp_path, monkeypatch):
    """`run(parts, *arguments)`: the record that is left, and the exit code."""
    topic = importlib.import_module("topic")
    monkeypatch.setattr(
        topic, "record", lambda command, commit, figures: {"command": command, "commit": commit, "figures": figures}
    )
    out = tmp_path / "record.json"

    def ran(parts, *arguments, commit="abc"):
        monkeypatch.setattr(sys, "argv", ["script", "--commit", commit, "--out", str(out), *arguments])
        code = 0
        try:
            topic.run("topic", "script.py", None, parts)
        except SystemExit as ended:
            code = ended.code
        return json.loads(out.read_text()), code

    return ran


def found(name, value):
    return lambda _, note: note(name, {name: Figure(value, "ms")})


def failing(*_):
    raise ValueError("it came to nothing")


def values(record):
    return {name: figure["value"] for name, figure in record["figures"].items()}


def test_a_part_that_fails_is_told_and_leaves_the_others_to_be_measured(run, capsys):
    record, code = run({"first": found("a", 1), "second": failing, "third": found("c", 3)})
    assert (values(record), code) == ({"a": 1, "c": 3}, 1)
    assert "ValueError: it came to nothing" in capsys.readouterr().err


def test_parts_of_one_commit_make_one_record_and_those_of_another_none(run):
    parts = {"first": found("a", 1), "second": found("b", 2)}
    run(parts, "--parts", "first")
    record, code = run(parts, "--parts", "second")
    assert (values(record), code) == ({"a": 1, "b": 2}, 0)
    assert record["command"] == "python3 script.py --parts first; python3 script.py --parts second"
    record, _ = run(parts, "--parts", "second", commit="def")
    assert values(record) == {"b": 2}
