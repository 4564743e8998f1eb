"""`nightjar local`: one NightjarService served on this machine until Ctrl-C."""

import json
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.status import Status

from nightjar_api import service as documents
from nightjar_api.errors import ConfigurationError
from nightjar_api.service import NightjarService
from nightjar_operator.errors import PodError
from nightjar_operator.local.pod import Event, LocalPod

_POLL_SECONDS = 0.5
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def local(
    file: Annotated[Path, typer.Option("--file", "-f", help="A NightjarService document.")],
    workdir: Annotated[
        Path | None,
        typer.Option(help="Folder for settings and logs; a temporary one, removed at the end, if unset."),
    ] = None,
) -> None:
    """Serve a NightjarService on this machine: engine and sidecar as local processes, drained on Ctrl-C.

    Edits of the document's spec.planner reach the running pod; edits elsewhere need a restart.
    """
    console = Console(highlight=False, soft_wrap=True)
    stop = _stop_on_signals()
    try:
        service = documents.load(file)
        with _folder(workdir) as folder:
            _serve(file, service, folder, stop, console)
    except KeyboardInterrupt:
        # What a person asked for, after everything has stopped.
        return
    except (ConfigurationError, PodError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]error[/red] {escape(str(error))}")
        raise typer.Exit(1) from error


def _serve(file: Path, service: NightjarService, folder: Path, stop: threading.Event, console: Console) -> None:
    with (
        console.status("starting") as status,
        LocalPod(service, folder, on_event=_Printer(console, status), stop=stop) as pod,
    ):
        status.stop()
        for line in _greeting(pod):
            console.print(escape(line))
        _follow(file, pod, stop, console)


def _greeting(pod: LocalPod) -> Iterator[str]:
    yield f"OpenAI API  {pod.openai_url}"
    if pod.status_url is not None:
        page = pod.status_url.removesuffix("status")
        yield f"page        {page}, in a terminal: nightjar top {page}"
        yield f"status      {pod.status_url}"
    yield f"logs        {pod.logs}"
    body = json.dumps({"model": pod.model, "prompt": "Once upon a time", "max_tokens": 32})
    yield f"try         curl -s {pod.openai_url}/completions -H 'Content-Type: application/json' -d '{body}'"
    yield "Ctrl-C drains and stops."


def _follow(file: Path, pod: LocalPod, stop: threading.Event, console: Console) -> None:
    """Until `stop`: notice a dead engine and changes of the document."""
    # Reading one small file twice a second sees every way editors and mounts replace it.
    latest, refusal = pod.service, ""
    while not stop.wait(_POLL_SECONDS):
        pod.check()
        try:
            found = documents.load(file)
        except ConfigurationError as error:
            if str(error) != refusal:
                refusal = str(error)
                console.print(f"[yellow]refused[/yellow] {escape(refusal)}; the settings in force stay")
            continue
        refusal = ""
        if found != latest:
            latest = found
            pod.apply(found)


class _Printer:
    """A line per event; while starting, the engine's last log line beside a spinner."""

    def __init__(self, console: Console, status: Status) -> None:
        self._console = console
        self._status = status

    def __call__(self, event: Event) -> None:
        if event.kind == "progress":
            self._status.update(escape(event.message[: self._console.width - 4]))
            return
        now = datetime.now().astimezone()
        self._console.print(f"{now:%H:%M:%S} [bold]{event.kind}[/bold] {escape(event.message)}")


@contextmanager
def _folder(workdir: Path | None) -> Iterator[Path]:
    if workdir is not None:
        try:
            workdir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"--workdir: a folder is required, found {workdir}: {error.strerror}") from error
        yield workdir
        return
    folder = Path(tempfile.mkdtemp(prefix="nightjar-local-"))
    try:
        yield folder
    except PodError:
        # The message points at the logs.
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    else:
        shutil.rmtree(folder, ignore_errors=True)


def _stop_on_signals() -> threading.Event:
    """Set by the first signal that asks us to stop; the second cuts the drain short, more are ignored."""
    stop = threading.Event()

    def ask(_signal: int, _frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            return
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _STOP_SIGNALS:
        signal.signal(number, ask)
    return stop
