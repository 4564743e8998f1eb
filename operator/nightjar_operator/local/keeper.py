"""Keeps the sidecar running, as a kubelet would: restarted with backoff, the engine left alone."""

import threading
import time
from collections.abc import Callable

from nightjar_api.errors import ConfigurationError
from nightjar_operator.local.process import Process

_POLL_SECONDS = 0.05
_FIRST_DELAY_SECONDS = 0.5
_LONGEST_DELAY_SECONDS = 10.0
_HEALTHY_SECONDS = 60.0


def restart_delay(failures: int) -> float:
    """Seconds to wait after the `failures`-th failure in a row, from 1."""
    return float(min(_FIRST_DELAY_SECONDS * 2 ** min(failures - 1, 10), _LONGEST_DELAY_SECONDS))


class Keeper:
    """Starts a process at once and again whenever it exits; `on_exit(code, delay)` comes from its thread."""

    def __init__(
        self,
        spawn: Callable[[], Process],
        on_exit: Callable[[int, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spawn = spawn
        self._on_exit = on_exit
        self._clock = clock
        self._stopping = threading.Event()
        self.failures = 0
        """Exits in a row, none of which followed a minute of running."""
        self.process = spawn()
        self._started = clock()
        self._thread = threading.Thread(target=self._keep, name="sidecar keeper", daemon=True)
        self._thread.start()

    def stop(self, grace_seconds: float) -> None:
        self._stopping.set()
        self._thread.join()
        self.process.terminate(grace_seconds)

    def _keep(self) -> None:
        while not self._stopping.wait(_POLL_SECONDS):
            code = self.process.exit_code()
            if code is not None:
                self._restart(code)

    def _restart(self, code: int) -> None:
        self.process.kill()
        ran_seconds = self._clock() - self._started
        self.failures = 1 if ran_seconds >= _HEALTHY_SECONDS else self.failures + 1
        delay = restart_delay(self.failures)
        self._on_exit(code, delay)
        if self._stopping.wait(delay):
            return
        try:
            self.process = self._spawn()
        except ConfigurationError:
            # Its program is gone for the moment: the old process still reads as exited, so the next round
            # tries again, later each time.
            return
        finally:
            self._started = self._clock()
