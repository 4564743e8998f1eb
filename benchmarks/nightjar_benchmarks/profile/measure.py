"""Step times and acceptance from step reports. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_api.errors import ConfigurationError
from nightjar_api.gamma_table import Entry
from nightjar_benchmarks.simulator.step_times import StepTimes
from nightjar_sidecar.attribution import Attribution, Round
from nightjar_sidecar.policies import static_table
from nightjar_sidecar.policies.robust import location
from nightjar_sidecar.switch_cost import SwitchCost

# A row from fewer rounds may be that of a compilation.
_LEAST_ROUNDS = 5
# The standard deviation over the mean absolute deviation of a normal spread.
_SIGMA = 1.25

Rows = Mapping[tuple[int, int], Sequence[Round]]


@dataclass(frozen=True)
class Profile:
    """`document` is what `nightjar simulate --times` reads; `tokens[γ]` a request gets in a round."""

    document: Mapping[str, Any]
    tokens: Sequence[float]
    rounds: int


def profile(reports: Iterable[StepReport], name: str) -> Profile:
    """ConfigurationError says which lengths are missing."""
    rounds, cost = _rounds(reports)
    rows = _rows(rounds)
    _check(rows)
    forward = {key: location(round_.forward_seconds for round_ in of) for key, of in rows.items()}
    draft = {key: location(round_.draft_seconds for round_ in of) for key, of in rows.items()}
    host = [round_.host_seconds for of in rows.values() for round_ in of if round_.host_seconds is not None]
    spread = [abs(round_.forward_seconds / forward[key] - 1) for key, of in rows.items() for round_ in of]
    document = {
        "name": name,
        "kind": "measured",
        "source": "Step reports of a running engine; what attention costs by context is not told apart, so it is"
        " in the rows.",
        "prefill_us_per_token": 1e6 * _prefill_seconds(rounds, forward),
        "catch_up_start_us": 1e6 * cost.seconds_per_step,
        "catch_up_us_per_token": 1e6 * cost.seconds_per_token,
        "kv_ns_per_token": 0.0,
        "draft_kv_ns_per_token": 0.0,
        "base_context": 0,
        "host_us": 1e6 * location(host) if host else 0.0,
        "noise": _SIGMA * location(spread),
        "rows": [
            [gamma, batch, 1e3 * (forward[gamma, batch] + draft[gamma, batch]), 1e3 * draft[gamma, batch]]
            for gamma, batch in sorted(rows)
        ],
    }
    return Profile(document, _tokens(rows), sum(map(len, rows.values())))


def table(times: StepTimes, tokens: Sequence[float], most: int) -> tuple[Entry, ...]:
    """The best static table for batches up to `most`."""
    return static_table.optimal(times.seconds, tokens, most)


def _rounds(reports: Iterable[StepReport]) -> tuple[list[Round], SwitchCost]:
    attribution, cost, rounds = Attribution(), SwitchCost(), []
    for report in reports:
        cost.observe(report)
        round_ = attribution.round(report)
        if round_ is not None and round_.forward_seconds > 0:
            rounds.append(round_)
    return rounds, cost


def _rows(rounds: Iterable[Round]) -> Rows:
    """Rounds without prompts by (γ, batch), where there are enough."""
    found: dict[tuple[int, int], list[Round]] = defaultdict(list)
    for round_ in rounds:
        if round_.typical and not round_.prefill_share:
            found[round_.gamma, round_.batch].append(round_)
    return {key: of for key, of in found.items() if len(of) >= _LEAST_ROUNDS}


def _check(rows: Rows) -> None:
    gammas = sorted({gamma for gamma, _ in rows})
    if gammas[:1] != [0] or len(gammas) < 2:
        raise ConfigurationError(
            f"step reports with at least {_LEAST_ROUNDS} steps of one batch without prompts, at gamma 0 and at another"
            f' gamma, are required, found gammas {gammas}; serve for a while with planner.policy "off", then fixed'
        )


def _prefill_seconds(rounds: Iterable[Round], forward: Mapping[tuple[int, int], float]) -> float:
    """What a prompt token adds to a pass; 0 while no prompts were read beside decodes that are known."""
    found = [
        max(0.0, round_.forward_seconds - forward[round_.gamma, round_.batch]) / round_.prefill_tokens
        for round_ in rounds
        if round_.prefill_tokens and (round_.gamma, round_.batch) in forward
    ]
    return location(found) if found else 0.0


def _tokens(rows: Rows) -> list[float]:
    """Expected tokens per request and round for γ = 0 … the longest that was measured."""
    longest = max(gamma for gamma, _ in rows)
    drafted, accepted = [0.0] * longest, [0.0] * longest
    for of in rows.values():
        for round_ in of:
            for position, passed in enumerate(round_.accepted):
                drafted[position] += round_.verified[0]
                accepted[position] += passed
    tokens = [1.0]
    for tried, successes in zip(drafted, accepted, strict=True):
        tokens.append(tokens[-1] + (successes / tried if tried else 0.0))
    return tokens
