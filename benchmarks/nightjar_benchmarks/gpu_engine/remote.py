"""Engines under test, each in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_MODULE = "nightjar_benchmarks.gpu_engine.under_test"
# What an answer has where a command came to nothing: its traceback.
FAILED = "failed"


class Remote:
    """`send` and `receive` apart let several engines start, or write their models, at once."""

    def __init__(self, name: str, arguments: dict[str, Any], log: Path, module: str = _MODULE) -> None:
        self.name = name
        self._log = log
        reading, writing = os.pipe()
        with log.open("w") as output:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", module, "--arguments", json.dumps(arguments)),
                    *("--answers", f"/dev/fd/{writing}"),
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                text=True,
            )
        os.close(writing)
        self._answers = os.fdopen(reading)
        self._commands = self._process.stdin

    def send(self, **command: Any) -> None:
        print(json.dumps(command), file=self._commands, flush=True)

    def receive(self) -> dict[str, Any]:
        """The next answer; RuntimeError with what failed, or with the end of the log when the process has ended."""
        line = self._answers.readline()
        if not line:
            self.stop()
            tail = "\n".join(self._log.read_text(encoding="utf-8").splitlines()[-60:])
            raise RuntimeError(f"the engine {self.name!r} ended:\n{tail}")
        found: dict[str, Any] = json.loads(line)
        if FAILED in found:
            raise RuntimeError(f"the engine {self.name!r} failed:\n{found[FAILED]}")
        return found

    def ask(self, **command: Any) -> dict[str, Any]:
        self.send(**command)
        return self.receive()

    def stop(self) -> None:
        """The process ends when it has nothing more to read."""
        if self._commands is not None:
            self._commands.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.close()
