"""From outcomes to the suite's figures: who is how much better where."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from nightjar_benchmarks.compare.runs import Task
from nightjar_benchmarks.records import Figure
from nightjar_benchmarks.simulator.outcome import Outcome
from nightjar_benchmarks.simulator.scenario import Scenario

OURS = "nightjar"
ORACLE = "oracle"
# Ties count as ties.
_TIE = 0.005
_NOT_SINGLE = (OURS, ORACLE, "static-table")
_WARM_STEPS_NEEDED = 500


class Scores:
    """Scores by scenario, policy and seed; more is better."""

    def __init__(self, scenarios: Mapping[str, Scenario], outcomes: Iterable[tuple[Task, Outcome]]) -> None:
        self.outcomes = {(task.scenario, task.policy, task.seed): outcome for task, outcome in outcomes}
        self.scenarios = {name: scenarios[name] for name, _, _ in self.outcomes}
        self.policies = list(dict.fromkeys(policy for _, policy, _ in self.outcomes))
        self.seeds = sorted({seed for _, _, seed in self.outcomes})

    def of(self, scenario: str, policy: str, seed: int, *, warm: bool = False) -> float:
        return self.outcomes[scenario, policy, seed].score(self.scenarios[scenario].metric, warm=warm)

    def mean(self, scenario: str, policy: str) -> float:
        return fmean(self.of(scenario, policy, seed) for seed in self.seeds)

    def ratio(self, scenario: str, policy: str) -> float:
        """Of our policy to another, over all seeds."""
        return self.mean(scenario, OURS) / self.mean(scenario, policy)

    def best_single(self, scenario: str) -> str:
        """The best baseline of a scenario that needs no table for the very workload."""
        singles = [policy for policy in self.policies if policy not in _NOT_SINGLE]
        return max(singles, key=lambda policy: self.mean(scenario, policy))

    def named(self, *parts: str) -> list[str]:
        """Scenarios whose name has one of `parts`."""
        return [name for name in self.scenarios if any(part in name for part in parts)]


def figures(scores: Scores) -> dict[str, Figure]:
    """All that follow from the runs alone."""
    return {
        "oracle_gap_2000": _oracle_gap(scores),
        "win_share": _win_share(scores),
        "gain_over_best_single": _gain(scores, scores.named("/rates")),
        "worst_cell_ratio": _worst_cell(scores, scores.named("/rates", "/full")),
        "vs_static_table": _against_table(scores, [n for n, one in scores.scenarios.items() if not one.drifts]),
        "vs_static_table_drift": _against_table(scores, [n for n, one in scores.scenarios.items() if one.drifts]),
    }


def worth(scores: Scores) -> dict[str, Figure]:
    """Of each policy, the mean score as a share of the oracle's, over scenarios and seeds."""
    found = {}
    for policy in scores.policies:
        if policy != ORACLE:
            shares = {name: scores.mean(name, policy) / scores.mean(name, ORACLE) for name in scores.scenarios}
            found[policy.replace("-", "_")] = Figure(fmean(shares.values()), "share", shares)
    return found


def _oracle_gap(scores: Scores) -> Figure:
    gaps = {
        name: fmean(1 - scores.of(name, OURS, s, warm=True) / scores.of(name, ORACLE, s, warm=True) for s in seeds)
        for name in scores.scenarios
        if (seeds := _long_enough(scores, name))
    }
    return Figure(fmean(gaps.values()), "share", {"mean over seeds by scenario": gaps, "worst": max(gaps.values())})


def _long_enough(scores: Scores, scenario: str) -> list[int]:
    """Seeds whose runs go on well past the warm-up for both."""
    return [
        seed
        for seed in scores.seeds
        if min(scores.outcomes[scenario, policy, seed].warm.steps for policy in (OURS, ORACLE)) > _WARM_STEPS_NEEDED
    ]


def _win_share(scores: Scores) -> Figure:
    lost, pairs = _lost(scores, OURS), len(scores.scenarios) * len(scores.seeds)
    # Who knows the simulator's truth loses pairs too: what a run gives is not decided by γ alone.
    raw = {"pairs": pairs, "lost to": lost, "the oracle's": 1 - len(_lost(scores, ORACLE)) / pairs}
    return Figure(1 - len(lost) / pairs, "share", raw)


def _lost(scores: Scores, who: str) -> dict[str, list[str]]:
    """Runs in which others were better, and which; ours and the oracle are nobody's rivals here."""
    others = [policy for policy in scores.policies if policy not in (OURS, ORACLE)]
    lost: dict[str, list[str]] = {}
    for name in scores.scenarios:
        for seed in scores.seeds:
            score = scores.of(name, who, seed)
            better = [other for other in others if score < (1 - _TIE) * scores.of(name, other, seed)]
            if better:
                lost[f"{name}, seed {seed}"] = better
    return lost


def _gain(scores: Scores, cells: Sequence[str]) -> Figure:
    gains = {name: scores.ratio(name, scores.best_single(name)) - 1 for name in cells}
    raw = {
        "by cell": gains,
        "best single": {name: scores.best_single(name) for name in cells},
        "the oracle's": {name: _oracle_gain(scores, name) for name in cells},
        # How much there was to be had by adapting, whoever adapts.
        "the oracle's elsewhere": {name: _oracle_gain(scores, name) for name in scores.scenarios if name not in cells},
    }
    return Figure(fmean(gains.values()), "share", raw)


def _oracle_gain(scores: Scores, scenario: str) -> float:
    return scores.mean(scenario, ORACLE) / scores.mean(scenario, scores.best_single(scenario)) - 1


def _worst_cell(scores: Scores, cells: Sequence[str]) -> Figure:
    ratios = {name: scores.ratio(name, scores.best_single(name)) for name in cells}
    return Figure(min(ratios.values()), "×", ratios)


def _against_table(scores: Scores, names: Sequence[str]) -> Figure:
    ratios = {name: scores.ratio(name, "static-table") for name in names}
    return Figure(math.exp(fmean(map(math.log, ratios.values()))), "×", ratios)
