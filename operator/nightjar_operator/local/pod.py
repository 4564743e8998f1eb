"""Runs the pod of a NightjarService as processes: same commands, files, sockets and probes as on a node."""

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from nightjar_api import durations, settings
from nightjar_api.service import NightjarService
from nightjar_operator import changes, notices, pod
from nightjar_operator.errors import EngineExitedError, NotReadyError
from nightjar_operator.local import preflight, programs, readiness
from nightjar_operator.local.keeper import Keeper
from nightjar_operator.local.process import Process

_POLL_SECONDS = 0.1
_SIDECAR_START_FAILURES = 3


@dataclass(frozen=True)
class Event:
    """Something a person watching the pod wants to know, in one line."""

    kind: Literal[
        "ignored",
        "starting",
        "progress",
        "ready",
        "settings",
        "restart-needed",
        "sidecar-exited",
        "draining",
        "stopped",
    ]
    message: str


@dataclass(frozen=True)
class Deadlines:
    """How long things may take, in seconds."""

    engine_ready: float = 3600
    sidecar_ready: float = 60
    settings: float = 10
    """For the sidecar to confirm changed settings."""
    drain: int = 30
    exit: float = 15
    """For a process to exit once it has nothing left to do."""

    @classmethod
    def of(cls, service: NightjarService) -> Self:
        """Those a person asked for."""
        return cls(
            engine_ready=durations.seconds(service.spec.engine.startup_timeout), drain=pod.drain_seconds(service)
        )


class LocalPod:
    """`with LocalPod(service, workdir) as pod:` serves inside the block and leaves nothing behind.

    Entering returns when engine and sidecar are ready. It raises ConfigurationError before anything is
    started, NotReadyError after everything has been stopped. `on_event` may be called from another thread.
    `clock` counts seconds.
    Setting `stop` while it starts raises KeyboardInterrupt once everything has been stopped.
    """

    def __init__(
        self,
        service: NightjarService,
        workdir: Path,
        *,
        on_event: Callable[[Event], None] = lambda _: None,
        stop: threading.Event | None = None,
        run: programs.Programs | None = None,
        deadlines: Deadlines | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.service = service
        self.workdir = workdir
        self._emit = on_event
        self._stop_asked = stop or threading.Event()
        self._run = run
        self._deadlines = deadlines or Deadlines.of(service)
        self._clock = clock
        self._engine: Process | None = None
        self._keeper: Keeper | None = None
        self._socket_folder: Path | None = None
        self._served = False

    @property
    def openai_url(self) -> str:
        return f"http://127.0.0.1:{self.service.spec.engine.port}/v1"

    @property
    def status_url(self) -> str | None:
        """None where γ is not planned: there is no sidecar then."""
        return f"http://127.0.0.1:{self._status_port}/status" if pod.is_planned(self.service) else None

    @property
    def model(self) -> str:
        """The name requests use."""
        return pod.served_name(self.service)

    @property
    def logs(self) -> Path:
        return self.workdir / "logs"

    @property
    def sidecar_pid(self) -> int | None:
        return None if self._keeper is None else self._keeper.process.pid

    @property
    def engine_pid(self) -> int | None:
        return None if self._engine is None else self._engine.pid

    def check(self) -> None:
        """EngineExitedError, with the engine's last log lines, when the engine is gone."""
        code = None if self._engine is None else self._engine.exit_code()
        if self._engine is not None and code is not None:
            raise EngineExitedError(readiness.exited(self._engine, code, "while it served"), code)

    def apply(self, service: NightjarService) -> None:
        """Hand a changed document to the running pod if that needs no restart; events say what happened.

        Waits until the sidecar obeys, at most `Deadlines.settings`.
        """
        paths = changes.changed(self.service, service)
        restart = changes.needing_restart(paths)
        if restart:
            self._emit(
                Event("restart-needed", f"{', '.join(restart)}: needs a restart; nothing was changed until then")
            )
        elif paths and not pod.is_planned(service):
            self._emit(Event("settings", f"{', '.join(paths)}: no effect, {notices.why_unplanned(service)}"))
        elif paths:
            self.service = service
            self._write_settings()
            self._emit(Event("settings", f"{', '.join(paths)}: {self._confirmed(pod.revision(service))}"))

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def _status_port(self) -> int:
        return self.service.spec.engine.port + 1

    @property
    def _settings_file(self) -> Path:
        return self.workdir / "settings.json"

    def _start(self) -> None:
        run = self._run or programs.installed()
        planned = self._plan()
        for notice in notices.outside_a_cluster(self.service) + notices.without_planning(self.service):
            self._emit(Event("ignored", notice))
        self.logs.mkdir(parents=True, exist_ok=True)
        if planned.sidecar is not None:
            self._write_settings()
            self._keeper = Keeper(self._spawner(planned.sidecar, run), self._sidecar_exited)
        self._engine = self._spawner(planned.engine, run)()
        self._emit(Event("starting", f"engine started, log in {self._engine.log}"))
        self._await_engine(planned.engine, self._engine)
        if planned.sidecar is not None and self._keeper is not None:
            self._await_sidecar(planned.sidecar, self._keeper)
        self._served = True
        self._emit(Event("ready", f"serving {self.model} at {self.openai_url}"))

    def _plan(self) -> pod.Pod:
        preflight.check_models(self.service)
        preflight.check_port(self.service.spec.engine.port, "spec.engine.port")
        if pod.is_planned(self.service):
            preflight.check_port(self._status_port, "the status port, spec.engine.port + 1")
        # The workdir may lie deep; a socket's path is short by law.
        self._socket_folder = Path(tempfile.mkdtemp(prefix="nightjar-"))
        socket = self._socket_folder / "engine.sock"
        preflight.check_socket(socket)
        return pod.build(
            self.service,
            pod.Layout(socket, self._settings_file, self._status_port, drain_seconds=self._deadlines.drain),
        )

    def _spawner(self, container: pod.Container, run: programs.Programs) -> Callable[[], Process]:
        log = self.logs / f"{container.name}.log"
        log.unlink(missing_ok=True)
        argv = programs.argv(container, run)
        env = programs.environment(container, run, os.environ)
        return lambda: Process(container.name, argv, env, log)

    def _await_engine(self, container: pod.Container, engine: Process) -> None:
        last = ""
        deadline = self._clock() + self._deadlines.engine_ready
        while not readiness.answers(container.readiness):
            code = engine.exit_code()
            if code is not None:
                raise NotReadyError(readiness.exited(engine, code, "before it was ready"), code)
            if self._clock() > deadline:
                raise NotReadyError(readiness.late(engine, container.readiness, self._deadlines.engine_ready), None)
            line = (engine.last_lines(1) or [""])[0]
            if line != last:
                self._emit(Event("progress", line))
                last = line
            self._pause()

    def _await_sidecar(self, container: pod.Container, keeper: Keeper) -> None:
        deadline = self._clock() + self._deadlines.sidecar_ready
        while not readiness.answers(container.readiness):
            self.check()
            if keeper.failures >= _SIDECAR_START_FAILURES:
                code = keeper.process.exit_code()
                raise NotReadyError(
                    readiness.exited(keeper.process, code, f"{keeper.failures} times before it was ready"),
                    code,
                )
            if self._clock() > deadline:
                raise NotReadyError(
                    readiness.late(keeper.process, container.readiness, self._deadlines.sidecar_ready), None
                )
            self._pause()

    def _pause(self) -> None:
        if self._stop_asked.wait(_POLL_SECONDS):
            raise KeyboardInterrupt

    def _sidecar_exited(self, code: int, delay: float) -> None:
        self._emit(
            Event(
                "sidecar-exited",
                f"sidecar exited with code {code}, restarted in {delay:g} s; the engine goes on",
            )
        )

    def _write_settings(self) -> None:
        text = settings.dump(settings.for_service(self.service, pod.revision(self.service)))
        # A reader sees the old file or the new one, never half of one.
        new = self._settings_file.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        new.replace(self._settings_file)

    def _confirmed(self, revision: str) -> str:
        """What the sidecar says about the settings file just written."""
        deadline = self._clock() + self._deadlines.settings
        while self._clock() < deadline and not self._stop_asked.wait(_POLL_SECONDS):
            found = readiness.settings_in_force(f"{self.status_url}")
            if found is None:
                continue
            if found.revision == revision:
                return f"settings revision {revision} is in force"
            if found.error is not None:
                return f"refused by the sidecar, those in force stay: {found.error}"
        return f"settings revision {revision} is written, the sidecar has not confirmed it yet"

    def _stop(self) -> None:
        started = self._engine is not None or self._keeper is not None
        try:
            if self._engine is not None:
                self._drain(self._engine)
            if self._keeper is not None:
                self._keeper.stop(self._deadlines.exit)
        finally:
            # Also when a second Ctrl-C cuts the drain short.
            if self._engine is not None:
                self._engine.kill()
            if self._keeper is not None:
                self._keeper.stop(0)
            if self._socket_folder is not None:
                shutil.rmtree(self._socket_folder, ignore_errors=True)
        if started:
            self._emit(Event("stopped", "everything has stopped"))

    def _drain(self, engine: Process) -> None:
        grace = self._deadlines.exit
        if self._served and engine.exit_code() is None:
            self._emit(Event("draining", f"running requests may finish for up to {self._deadlines.drain} s"))
            grace += self._deadlines.drain
        engine.terminate(grace)
