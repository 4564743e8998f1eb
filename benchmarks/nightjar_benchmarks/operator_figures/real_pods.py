"""`python -m nightjar_benchmarks.operator_figures.real_pods`: measure and record what takes real pods.

How soon running engines obey a changed setting, and what that restarts: on a cluster whose node runs engines and
sidecars, with the operator as a pod. As root, like `make test-cluster`.
"""

import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from nightjar_benchmarks.figures import source, table
from nightjar_benchmarks.images.build import build
from nightjar_benchmarks.pairs.make import make_pair
from nightjar_benchmarks.pairs.shapes import SHAPES
from nightjar_benchmarks.real_cluster import node
from nightjar_benchmarks.real_cluster.clients import under_load
from nightjar_benchmarks.real_cluster.service import Service, eventually
from nightjar_benchmarks.real_cluster.stage import stage
from nightjar_benchmarks.records import Figure, clean_commit, measured, write
from nightjar_benchmarks.stopping import interrupted_by_signals

TOPIC = "operator"
_NAME = "tuned"
_REPLICAS = 2
_LOADING_SECONDS = 600
_TUNINGS = 5
# Beyond the goal: a figure that misses it is a figure, too.
_PATIENCE_SECONDS = 120


def main() -> None:
    """Measure and record how soon real pods obey a changed setting."""
    console = Console(highlight=False)
    root = Path.cwd()
    clean_commit(root)  # refuse before, not after, minutes of work
    node.require(root)
    with interrupted_by_signals():
        found = measure(root, console.print)
    made = measured(root, "python -m nightjar_benchmarks.operator_figures.real_pods", found, datetime.now(UTC))
    write(root, TOPIC, made)
    console.print(table(TOPIC, made), source(made, 0))


def measure(root: Path, say: Callable[[str], None]) -> dict[str, Figure]:
    """On a cluster of its own, with two pods under load."""
    images = build(root, say)
    with tempfile.TemporaryDirectory(prefix="nj-models-") as folder:
        pair = make_pair(Path(folder) / "pair", SHAPES["tiny"], [0.9, 0.6], 0)
        with stage(root, images, pair) as release:
            service = Service(release.cluster, _NAME)
            service.apply(replicas=_REPLICAS)
            eventually(lambda: len(service.ready_pods()) == _REPLICAS, "pods that serve", _LOADING_SECONDS)
            eventually(service.is_reached, "servers behind the Service", _LOADING_SECONDS)
            with under_load(service.url(), _NAME, pair, clients=2 * _REPLICAS) as outcome:
                found = tuning(service)
            if outcome.wrong:
                raise AssertionError(
                    f"right answers are required, found {len(outcome.wrong)} others: {outcome.wrong[0]}"
                )
            return found


def tuning(service: Service, tunings: int = _TUNINGS) -> dict[str, Figure]:
    """tuning_latency_s: from an edit until the steps of every engine show it, the slowest of several.

    Somebody must be asking the service meanwhile: an engine without requests takes no steps.
    """
    before = _running(service)
    seconds = []
    for number in range(tunings):
        gamma, cost = 1 + number % 3, f"{number + 1}ms"
        began = time.monotonic()
        service.change(planner={"policy": "fixed", "fixedGamma": gamma, "switchCost": cost})
        obeyed = partial(_is_obeyed, service, gamma, cost)
        eventually(obeyed, f"every engine to draft {gamma} tokens", _PATIENCE_SECONDS)
        seconds.append(round(time.monotonic() - began, 3))
    return {
        "tuning_latency_s": Figure(max(seconds), "s", seconds),
        "tuning_restarts": Figure(len(before - _running(service)), "restarts"),
    }


def _is_obeyed(service: Service, gamma: int, cost: str) -> bool:
    """Sidecars say what they hold, and what the engine's latest step says that it drafted."""
    found = service.sidecars()
    return all(one["switchCost"]["mode"] == cost and one["speculation"]["gamma"] == gamma for one in found)


def _running(service: Service) -> set[str]:
    """A restarted container has another ID, and so has one of a pod that was replaced."""
    return {container.id for container in service.containers()}


if __name__ == "__main__":
    typer.run(main)
