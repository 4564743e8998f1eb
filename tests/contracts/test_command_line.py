"""The `nightjar` command collects what the components offer."""

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightjar_api import cli
from nightjar_api.cli import build

ROOT = Path(__file__).parents[2]
COMMANDS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["nightjar.commands"]


@pytest.fixture
def run():
    runner = CliRunner()
    # Wide, so that no name is cut.
    return lambda *arguments: runner.invoke(build(arguments[0]), arguments, env={"COLUMNS": "200", "TERM": "dumb"})


def test_help_lists_every_declared_command(run):
    found = run("--help")
    assert found.exit_code == 0
    listed = {line.strip("│ ").split()[0] for line in found.output.splitlines() if line.startswith("│ ")}
    assert COMMANDS.keys() <= listed


def test_every_command_says_in_one_line_what_it_is_for():
    for entry in entry_points(group="nightjar.commands"):
        assert (entry.load().__doc__ or "").strip(), f"{entry.name} has no docstring"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(run, command):
    found = run(command, "--help")
    assert found.exit_code == 0, found.output
    assert f"nightjar {command}" in found.output or f"root {command}" in found.output


def test_an_unknown_command_is_refused(run):
    found = run("serve")
    assert found.exit_code == 2
    assert "No such command" in found.output


def test_a_document_that_is_wrong_ends_with_one_line_and_exit_code_1(run, tmp_path):
    file = tmp_path / "njs.yaml"
    file.write_text("kind: NightjarService\n")
    found = run("local", "-f", str(file))
    assert found.exit_code == 1
    assert "metadata: required, found nothing" in found.output
    assert "Traceback" not in found.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pair", "{}/file/x"), "a folder that can be written is required, found"),
        (
            ("pair", "{}", "--agreement", "a,b"),
            "--agreement: shares from 0 to 1 with commas between are required, found 'a,b'",
        ),
        (("pair", "{}", "--shape", "big"), "--shape: one of tiny, demo is required, found 'big'"),
        (("compare", "--suite", "none"), "--suite: one of paper, ablation is required, found 'none'"),
        (("figures", "--root", "{}"), "--root: a folder with benchmarks/results is required, found"),
    ],
)
def test_a_wrong_value_is_refused_with_its_option(run, tmp_path, arguments, said):
    (tmp_path / "file").touch()
    found = run(*(argument.format(tmp_path) for argument in arguments))
    assert found.exit_code == 2
    assert said in found.output
    assert "Traceback" not in found.output


def test_a_command_whose_libraries_are_missing_says_what_to_install(monkeypatch, tmp_path):
    (tmp_path / "nightjar_bare.py").write_text("import no_such_library\n\ndef bare(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("bare", "nightjar_bare:bare", "nightjar.commands")
    monkeypatch.setattr(cli, "entry_points", lambda group: [entry])
    found = CliRunner().invoke(build("bare"), ["bare", "--some", "thing"])
    assert found.exit_code == 1
    assert "nightjar bare requires the Python module no_such_library, found none" in found.output
    assert "install nightjar[bare]" in found.output


def test_the_sidecar_starts_without_loading_benchmarks():
    code = (
        "import sys; from nightjar_api.cli import build; build('sidecar'); print('nightjar_benchmarks' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (found.stdout.strip(), found.returncode) == ("False", 0), found.stderr
