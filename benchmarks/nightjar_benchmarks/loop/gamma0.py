"""γ = 0 against no draft at all: A B A B.

Both pods stay up; while one is measured the other has no request and does nothing, so the two are seconds
apart and share whatever else the machine does. Each figure is the median of the ratios of neighbouring runs.
"""

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from nightjar_benchmarks.load.replay import replay
from nightjar_benchmarks.load.stats import phase_stats
from nightjar_benchmarks.load.trace import Phase, requests_of
from nightjar_benchmarks.loop.service import service
from nightjar_benchmarks.pairs import DEMO, Pair, make_pair
from nightjar_benchmarks.pods import QUIET_SECONDS
from nightjar_benchmarks.records import Figure
from nightjar_operator.local.pod import LocalPod

BATCHES = (1, 4, 16)
_ROUNDS = 24
_TOKENS = 48


def measure(workdir: Path) -> dict[str, Figure]:
    """gamma0_vs_no_draft_bN; RuntimeError when a request failed."""
    pair = make_pair(workdir / "pair-demo", DEMO, (0.9,), 0)
    with (
        LocalPod(service("plain", pair, "float32", max(BATCHES), None), workdir / "plain") as a,
        LocalPod(service("gamma0", pair, "float32", max(BATCHES), "off"), workdir / "gamma0") as b,
    ):
        return {f"gamma0_vs_no_draft_b{batch}": _compare(a, b, pair, batch) for batch in BATCHES}


def ratio(rates: Sequence[tuple[float, float]]) -> float:
    """Median of B over the mean of the A before and the A after it; the last pair has only the A before."""
    following = [a for a, _ in rates[1:]]
    ratios = [b / statistics.mean([a, *following[index : index + 1]]) for index, (a, b) in enumerate(rates)]
    return statistics.median(ratios)


def _compare(a: LocalPod, b: LocalPod, pair: Pair, batch: int) -> Figure:
    for pod in (a, b):
        _tokens_per_s(pod, pair, batch, 0)  # warm-up
    rates = [
        (_tokens_per_s(a, pair, batch, number), _tokens_per_s(b, pair, batch, number))
        for number in range(1, _ROUNDS + 1)
    ]
    return Figure(ratio(rates), "×", {"no_draft_then_gamma0_tokens_per_s": rates})


def _tokens_per_s(pod: LocalPod, pair: Pair, batch: int, number: int) -> float:
    phase = Phase(f"round {number} of {batch}", batch, batch, 0, (_TOKENS, _TOKENS))
    trace = [(phase, requests_of(pair, phase, pair.shape.context_tokens, 0))]
    time.sleep(QUIET_SECONDS)
    run = asyncio.run(replay(pod.openai_url, pod.model, trace, time.monotonic, lambda _: None))[0]
    stats = phase_stats(run)
    if stats.failed:
        pod.check()
        raise RuntimeError(f"{pod.model}: no failed request is required, found {stats.failed}; log in {pod.logs}")
    return stats.tokens_per_s
