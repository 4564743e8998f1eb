"""Starting a server with a configuration that cannot be served, as a user sees it."""

import json
import os
import time

import pytest

from nightjar_operator.local.process import Process
from nightjar_operator.local.programs import installed

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]


@pytest.fixture
def start(tmp_path, pair):
    started = []

    def run(*args):
        """The exit code of a server with these arguments, and its last lines."""
        programs = installed()
        argv = [*programs.engine, str(pair.target), "--enforce-eager", "--max-model-len", "256", *args]
        process = Process("engine", argv, programs.engine_env | os.environ, tmp_path / "log")
        started.append(process)
        deadline = time.monotonic() + 500
        while process.exit_code() is None:
            assert time.monotonic() < deadline, "\n".join(process.last_lines(20))
            time.sleep(0.1)
        return process

    yield run
    for process in started:
        process.kill()


def test_opting_in_without_a_draft_ends_with_the_sentence_that_says_so_and_leaves_nothing(start, tmp_path):
    socket = tmp_path / "e.sock"
    process = start("--additional-config", json.dumps({"nightjar": {"socket": str(socket)}}))
    assert process.exit_code() not in (0, None)
    last = process.last_lines(1)[0]
    assert "Nightjar requires a draft model: pass --speculative-config" in last
    assert "or remove `nightjar` from --additional-config" in last
    assert not socket.exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
