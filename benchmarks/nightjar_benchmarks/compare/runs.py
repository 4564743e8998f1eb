"""Runs scenarios × policies × seeds on the cores there are."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from nightjar_benchmarks.compare.contenders import CONTENDERS
from nightjar_benchmarks.compare.suites import SUITES
from nightjar_benchmarks.simulator.outcome import Outcome


class Task(NamedTuple):
    """One run."""

    suite: str
    scenario: str
    policy: str
    seed: int


def tasks(suite: str, policies: Iterable[str], seeds: int) -> list[Task]:
    names = list(policies)
    return [
        Task(suite, scenario, policy, seed) for scenario in SUITES[suite]() for seed in range(seeds) for policy in names
    ]


def run(task: Task) -> Outcome:
    return CONTENDERS[task.policy](SUITES[task.suite]()[task.scenario], task.seed)


def run_all(todo: Sequence[Task], workers: int | None = None) -> Iterator[tuple[Task, Outcome]]:
    """In the order given, as they are done; `workers` processes, by default one a core."""
    workers = workers or len(os.sched_getaffinity(0))
    if workers == 1:
        yield from ((task, run(task)) for task in todo)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from zip(todo, pool.map(run, todo, chunksize=4), strict=True)
