"""`nightjar demo`: no draft, fixed γ, Nightjar; the same load, in turn."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.demo.arm import ArmRun, run_arms
from nightjar_benchmarks.demo.page import page
from nightjar_benchmarks.demo.progress import DemoProgress
from nightjar_benchmarks.demo.report import report
from nightjar_benchmarks.demo.scenario import ARMS, Scenario, scenario, services, trace, warm_up
from nightjar_benchmarks.demo.table import table
from nightjar_benchmarks.host import host, versions
from nightjar_benchmarks.load.trace import count
from nightjar_benchmarks.pairs import make_pair
from nightjar_benchmarks.ports import free_ports
from nightjar_benchmarks.records import head
from nightjar_benchmarks.stopping import interrupted_by_signals
from nightjar_operator.errors import PodError

_PAIR_SEED = 0


def demo(
    *,
    quick: Annotated[bool, typer.Option(help="Fewer and shorter requests: three minutes or less.")] = False,
    out: Annotated[Path, typer.Option(help="Where the report, the logs and the pair are written.")] = Path("out/demo"),
) -> None:
    """Serve one bursty load three ways: without a draft, with a fixed γ = 3, and with Nightjar."""
    console = Console(highlight=False)
    begun = time.monotonic()
    chosen = scenario(quick=quick)
    try:
        with interrupted_by_signals():
            arms = _run(chosen, _folder(out), console)
    except (ConfigurationError, PodError) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"[red]error[/red] {escape(str(error))}")
        raise typer.Exit(1) from error
    document = report(arms, _about(chosen, quick=quick, wall_s=time.monotonic() - begun))
    _write(document, out)
    _show(document, out, console)
    if document["failed"] or not document["lossless"]:
        raise typer.Exit(1)


def _folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--out: a folder is required, found {out}: {error.strerror}") from error
    return out


def _run(chosen: Scenario, out: Path, console: Console) -> list[ArmRun]:
    with console.status("making the pair of models"):
        pair = make_pair(out.resolve() / "pair", chosen.shape, chosen.agreement, _PAIR_SEED)
    documents = services(pair, chosen, free_ports(len(ARMS)))
    with DemoProgress(console, list(documents), count(chosen.phases)) as progress:
        return run_arms(documents, out, warm_up(pair, chosen), trace(pair, chosen), progress.watchers)


def _about(chosen: Scenario, *, quick: bool, wall_s: float) -> dict[str, Any]:
    return {
        "quick": quick,
        "wall_s": wall_s,
        "commit": head(Path.cwd()),
        "scenario": asdict(chosen),
        "host": host(),
        "versions": versions(),
    }


def _write(document: dict[str, Any], out: Path) -> None:
    (out / "report.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (out / "report.html").write_text(page(document), encoding="utf-8")


def _show(document: dict[str, Any], out: Path, console: Console) -> None:
    console.print(table(document))
    verdict = "[green]lossless[/green]" if document["lossless"] else "[red]NOT lossless[/red], see report.json"
    console.print(
        f"{verdict}; {document['requests']} requests, {document['failed']} failed;"
        f" Nightjar changed γ {document['gamma_switches']} times; {document['wall_s']:.0f} s in all"
    )
    console.print(f"{out / 'report.html'}", soft_wrap=True)
