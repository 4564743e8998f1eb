"""The demo as a person watches it."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from nightjar_benchmarks.demo.arm import Watcher
from nightjar_benchmarks.load.client import RequestRecord
from nightjar_operator.local.pod import Event


class DemoProgress:
    """A bar per arm: its requests served, and what it is doing."""

    def __init__(self, console: Console, names: Sequence[str], requests: int) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("[bold]{task.fields[arm]:9}[/bold]"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self.watchers = {
            name: ArmWatcher(self._progress, self._progress.add_task("starting", total=requests, arm=name))
            for name in names
        }

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()


class ArmWatcher(Watcher):
    """Moves one arm's bar; called from the thread that starts its pod, too."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._failed = 0

    def event(self, event: Event) -> None:
        # The engine's own log lines are in its log; here the stage is enough.
        stage = {"ready": "ready", "draining": "stopping", "stopped": "done"}.get(event.kind)
        if stage is not None:
            self._describe(stage)

    def served(self, record: RequestRecord) -> None:
        if record.error is not None:
            self._failed += 1
            self._progress.console.print(f"[red]failed[/red] {record.id}: {escape(record.error)}")
        self._progress.advance(self._task)
        self._describe(record.phase)

    def waits(self) -> None:
        self._describe("waits for its turn")

    def _describe(self, stage: str) -> None:
        failures = f", [red]{self._failed} failed[/red]" if self._failed else ""
        self._progress.update(self._task, description=stage + failures)
