"""`nightjar local` as a person meets it: output, signals, exit codes."""

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import httpx
import pytest
import yaml

PROGRAM = Path(__file__).parent / "doubles" / "local_with_doubles.py"


class Session:
    """A running `nightjar local` whose output is read line by line."""

    def __init__(self, file, *arguments, env):
        self.file = file
        self._popen = subprocess.Popen(
            [sys.executable, str(PROGRAM), "-f", str(file), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **env},
        )
        self._queue = queue.Queue()
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._popen.stdout:
            self._queue.put(line.rstrip())
        self._queue.put(None)

    def line_with(self, text, seconds=300):
        while True:
            line = self._queue.get(timeout=seconds)
            assert line is not None, f"no line with {text!r} in {self.lines}"
            self.lines.append(line)
            if text in line:
                return line

    def send(self, number):
        self._popen.send_signal(number)

    def end(self, seconds=300):
        """Exit code; everything said is in `lines` then."""
        code = self._popen.wait(seconds)
        while (line := self._queue.get(timeout=seconds)) is not None:
            self.lines.append(line)
        self._popen.stdout.close()
        return code


def write(file, text):
    """As editors do: who reads it meanwhile finds the old text or the new one."""
    fresh = file.with_name("fresh")
    fresh.write_text(text)
    fresh.replace(file)


@pytest.fixture
def document(make_service, tmp_path):
    """Writes the document of `make_service(…)` and returns its file."""

    def document(**fields):
        file = tmp_path / "njs.yaml"
        service = make_service(**fields)
        write(file, yaml.safe_dump(service.model_dump(mode="json", by_alias=True, exclude_defaults=True)))
        return file

    return document


@pytest.fixture
def start():
    sessions = []
    # Short: a socket's path has 107 bytes.
    folder = tempfile.mkdtemp(prefix="nj-", dir="/tmp")

    def start(*arguments, env=None):
        sessions.append(Session(*arguments, env={"TMPDIR": folder, **(env or {})}))
        return sessions[-1]

    yield start
    for session in sessions:
        if session._popen.poll() is None:
            session.send(signal.SIGTERM)
            session.end()
    shutil.rmtree(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_prints_where_it_serves_and_drains_when_told_to_stop(document, start, make_service, number):
    port = make_service().spec.engine.port
    session = start(document())
    assert session.line_with("OpenAI API").endswith(f"http://127.0.0.1:{port}/v1")
    assert session.line_with("status").endswith(f"http://127.0.0.1:{port + 1}/status")
    assert '"model": "story"' in session.line_with("curl")
    session.line_with("Ctrl-C")
    session.send(number)
    assert session.end() == 0
    assert session.lines[-1].endswith("stopped everything has stopped")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)


def test_an_interrupt_while_loading_ends_cleanly(document, start):
    session = start(document(engine={"env": {"ENGINE_DOUBLE_HANGS": "1"}}))
    session.line_with("starting")
    session.send(signal.SIGINT)
    session.send(signal.SIGINT)
    assert session.end() == 0


def test_an_edit_of_the_planner_reaches_the_running_pod(document, start, make_service):
    session = start(document())
    session.line_with("Ctrl-C")
    document(planner={"gammaMax": 1})
    revision = session.line_with("settings spec.planner.gammaMax: settings revision").split()[-4]
    url = f"http://127.0.0.1:{make_service().spec.engine.port + 1}/status"
    status = httpx.get(url, trust_env=False, timeout=300).json()["settings"]
    assert (status["revision"], status["planner"]["gammaMax"]) == (revision, 1)


def test_an_edit_elsewhere_says_what_needs_a_restart_once(document, start):
    session = start(document())
    session.line_with("Ctrl-C")
    document(engine={"args": ["--enforce-eager"]})
    session.line_with("restart-needed spec.engine.args")
    session.send(signal.SIGTERM)
    assert session.end() == 0
    assert len([line for line in session.lines if "restart-needed" in line]) == 1


def test_a_broken_edit_is_refused_and_serving_goes_on(document, start, make_service):
    session = start(document())
    session.line_with("Ctrl-C")
    write(session.file, "kind: [")
    session.line_with("refused")
    session.line_with("the settings in force stay")
    document(planner={"gammaMax": 2})
    session.line_with("settings spec.planner.gammaMax")


def test_a_killed_sidecar_is_announced(document, start, tmp_path):
    pids = tmp_path / "pids"
    session = start(document(), env={"SIDECAR_DOUBLE_PIDS": str(pids)})
    session.line_with("Ctrl-C")
    os.kill(int(pids.read_text()), signal.SIGKILL)
    session.line_with("sidecar-exited sidecar exited with code -9")


def test_an_engine_that_dies_while_serving_ends_with_exit_code_1(document, start, tmp_path):
    pids = tmp_path / "pids"
    session = start(document(engine={"env": {"ENGINE_DOUBLE_PIDS": str(pids)}}))
    session.line_with("Ctrl-C")
    os.kill(int(pids.read_text().split()[0]), signal.SIGKILL)
    assert session.end() == 1
    assert any("engine exited while it served, exit code -9" in line for line in session.lines)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"engine": {"env": {"ENGINE_DOUBLE_EXIT": "5"}}}, "engine exited before it was ready, exit code 5"),
        ({"target": {"source": {"path": "/nowhere"}}}, "spec.target.source.path: "),
    ],
)
def test_what_is_wrong_is_said_without_a_traceback_and_ends_with_exit_code_1(document, start, fields, named):
    session = start(document(**fields))
    assert session.end() == 1
    assert any(named in line for line in session.lines)
    assert not any("Traceback" in line for line in session.lines)


def test_the_logs_of_a_failed_start_stay(document, start):
    session = start(document(engine={"env": {"ENGINE_DOUBLE_EXIT": "5"}}))
    assert session.end() == 1
    line = next(line for line in session.lines if "its last log lines" in line)
    assert "weights do not fit" in Path(line.split("(")[1].split(")")[0]).read_text()


def test_a_workdir_that_is_a_file_is_refused(document, start, tmp_path):
    (tmp_path / "file").write_text("")
    session = start(document(), "--workdir", str(tmp_path / "file"))
    assert session.end() == 1
    assert any("--workdir: a folder is required" in line for line in session.lines)
