"""A container as a process group of its own."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from nightjar_api.errors import ConfigurationError


class Process:
    """A running program with its descendants; they never outlive it."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self.log = log
        try:
            with log.open("ab") as output:
                # A session of its own: Ctrl-C in the terminal reaches us alone, and we drain in order.
                self._popen = subprocess.Popen(
                    argv,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            # ValueError: a zero byte in an argument, `=` in the name of a variable.
            raise ConfigurationError(
                f"{name}: a program, arguments and environment that can be started are required,"
                f" found {argv[0]}: {error}"
            ) from error

    @property
    def pid(self) -> int:
        return self._popen.pid

    def exit_code(self) -> int | None:
        """None while it runs; negative numbers are signals."""
        return self._popen.poll()

    def terminate(self, grace_seconds: float) -> None:
        """SIGTERM, then SIGKILL to whatever is left of the group after `grace_seconds`."""
        if self.exit_code() is None:
            self._popen.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(grace_seconds)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole group, descendants of a dead leader included."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def last_lines(self, count: int) -> list[str]:
        return tail(self.log, count)


def tail(log: Path, count: int) -> list[str]:
    """The last non-empty lines within a log's last 64 KiB; none when there is no log yet."""
    if not log.exists():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 65536))
        text = file.read().decode("utf-8", errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()][-count:]
