"""A sidecar in a process of its own that plans for a fake engine."""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings, dump
from nightjar_benchmarks.page.fake_engine import FakeEngine, tide

# The installed command would be another checkout's, where one is installed.
_COMMAND = "import typer; from nightjar_sidecar.command import sidecar; typer.run(sidecar)"
_LISTENING = "serves the page"
_STOP_SECONDS = 20


@dataclass(frozen=True)
class Stage:
    """Where the page is, and who serves it."""

    url: str
    sidecar_pid: int
    folder: Path

    def engine(self, load: Callable[[float], int] = tide) -> FakeEngine:
        """What the sidecar plans for; to be entered."""
        return FakeEngine(self.folder / "engine.sock", load)


@contextmanager
def stage() -> Iterator[Stage]:
    with tempfile.TemporaryDirectory(prefix="nj-page-") as name:
        folder = Path(name)
        (folder / "settings.json").write_text(dump(SidecarSettings(revision="1", planner=PlannerSpec())), "utf-8")
        with _sidecar(folder) as (url, pid):
            yield Stage(url, pid, folder)


@contextmanager
def _sidecar(folder: Path) -> Iterator[tuple[str, int]]:
    options = {"--engine-socket": folder / "engine.sock", "--settings": folder / "settings.json", "--port": 0}
    arguments = [str(part) for option in options.items() for part in option]
    log = folder / "sidecar.log"
    with (
        log.open("w") as stream,
        subprocess.Popen([sys.executable, "-c", _COMMAND, *arguments], stderr=stream) as process,
    ):
        try:
            yield _url(process, log), process.pid
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _url(process: subprocess.Popen[bytes], log: Path) -> str:
    """The sidecar says it in its log."""
    while process.poll() is None:
        for line in log.read_text().splitlines():
            if _LISTENING in line:
                return next(word for word in line.split() if word.startswith("http://")) + "/"
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            continue
    raise RuntimeError(f"a sidecar that listens is required, found one that exited:\n{log.read_text()}")
