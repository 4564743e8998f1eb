"""ADA-BINGREEDY, the policy of the Nightjar paper (arXiv 2512.22420), reconstructed.

Each bucket of batches has a timeline of blocks j = 1, 2, … of 2^(j-1) visits, cut into bins of
⌊√block⌋ visits. One coin per bin decides whether it explores; its arm is locked. Exploitation takes the
arm with the least mean loss, where a return from 0 to γ adds switch_seconds / γ. The loss is the latency
per token of one request: round seconds · batch / tokens.

The paper's text and the authors' code differ in places; `Fidelity` holds both readings.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Choice, Context, Decision, Segment
from nightjar_sidecar.space import Bucket, Space


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Readings of the paper.

    `coin`: probability that bin b of a block explores. `lock`: one arm per bin, or a draw (exploring) or
    an argmin (exploiting) per visit. `mean_of`: running mean of the loss, or 1 / running mean of goodput.
    `zero_explored_from`: smallest batch at which γ = 0 may be explored (the authors' code masks it below).
    """

    coin: Literal["1/b", "1/sqrt(b)"] = "1/b"
    lock: bool = True
    mean_of: Literal["loss", "goodput"] = "loss"
    zero_explored_from: int = 0


@dataclass(slots=True)
class _Mean:
    count: int = 0
    value: float = 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += (value - self.value) / self.count


@dataclass(slots=True)
class _Bin:
    """Visits that remain, oldest first; an exploiting bin whose arm is not locked takes any arm."""

    arms: list[int]
    probability: float
    explores: bool
    strays: int = 0


@dataclass(slots=True)
class _Timeline:
    block: int = 1
    bin: int = 1
    open: _Bin | None = None
    mean_by_gamma: dict[int, _Mean] = field(default_factory=dict)

    @property
    def bin_visits(self) -> int:
        return max(1, math.isqrt(2 ** (self.block - 1)))

    def close_bin(self) -> None:
        self.open = None
        self.bin += 1
        if (self.bin - 1) * self.bin_visits >= 2 ** (self.block - 1):
            self.block += 1
            self.bin = 1


class AdaBinGreedy:
    """The paper's planner; `rng` draws coins and arms."""

    def __init__(self, space: Space, rng: Random, fidelity: Fidelity | None = None) -> None:
        self._space = space
        self._rng = rng
        self._fidelity = fidelity or Fidelity()
        self._timeline_by_bucket: dict[Bucket, _Timeline] = {}

    def score(self, context: Context) -> Mapping[int, float]:
        means = self._timeline(context.batch).mean_by_gamma
        return {gamma: self._loss(means[gamma]) for gamma in self._space.gammas if gamma in means}

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        """An exploring bin is a schedule, so that steps after it, before the next plan, exploit."""
        timeline = self._timeline(context.batch)
        if timeline.open is None:
            timeline.open = self._draw_bin(timeline, context)
        bin_ = timeline.open
        if bin_.explores:
            return Decision(self._exploit(context), _segments(bin_.arms), bin_.probability)
        if self._fidelity.lock:
            return Decision(bin_.arms[0], probability=bin_.probability)
        hold = self._exploit(context)
        return Decision(hold, probability=self._probability(hold, context, timeline.bin))

    def learn(self, round_: Round) -> None:
        timeline = self._timeline(round_.batch)
        if not round_.mixed and round_.tokens > 0:
            loss = round_.seconds * round_.batch / round_.tokens
            value = loss if self._fidelity.mean_of == "loss" else 1 / loss
            timeline.mean_by_gamma.setdefault(round_.gamma, _Mean()).add(value)
        self._visit(timeline, round_.gamma)

    def adopt(self, space: Space) -> None:
        kept = set(space.buckets) & set(self._timeline_by_bucket)
        self._timeline_by_bucket = {bucket: self._timeline_by_bucket[bucket] for bucket in kept}
        for timeline in self._timeline_by_bucket.values():
            timeline.open = None  # its arm may be gone
        self._space = space

    def _timeline(self, batch: int) -> _Timeline:
        return self._timeline_by_bucket.setdefault(self._space.bucket(batch), _Timeline())

    def _visit(self, timeline: _Timeline, gamma: int) -> None:
        bin_ = timeline.open
        if bin_ is None:
            return
        if gamma == bin_.arms[0] or not (bin_.explores or self._fidelity.lock):
            bin_.arms.pop(0)
        else:
            bin_.strays += 1  # planned before this bin, or the engine could not obey it (drafts still stale)
        if not bin_.arms or bin_.strays > 4 * (timeline.bin_visits + 8):
            timeline.close_bin()

    def _draw_bin(self, timeline: _Timeline, context: Context) -> _Bin:
        visits = timeline.bin_visits
        chance = self._coin(timeline.bin)
        if self._rng.random() >= chance:
            arm = self._exploit(context)
            return _Bin([arm] * visits, self._probability(arm, context, timeline.bin), explores=False)
        arms = self._explorable(context.batch)
        drawn = [self._rng.choice(arms)] * visits
        if not self._fidelity.lock:
            drawn = [self._rng.choice(arms) for _ in range(visits)]
        return _Bin(drawn, self._probability(drawn[0], context, timeline.bin), explores=True)

    def _coin(self, bin_: int) -> float:
        return 1 / bin_ if self._fidelity.coin == "1/b" else 1 / math.sqrt(bin_)

    def _probability(self, gamma: int, context: Context, bin_: int) -> float:
        chance = self._coin(bin_)
        arms = self._explorable(context.batch)
        exploit = (1 - chance) if gamma == self._exploit(context) else 0.0
        return exploit + (chance / len(arms) if gamma in arms else 0.0)

    def _explorable(self, batch: int) -> list[int]:
        first = 0 if batch >= self._fidelity.zero_explored_from or self._space.gamma_max == 0 else 1
        return list(range(first, self._space.gamma_max + 1))

    def _exploit(self, context: Context) -> int:
        means = self._timeline(context.batch).mean_by_gamma
        untried = [gamma for gamma in self._explorable(context.batch) if gamma not in means]
        if untried:
            return untried[0]
        returning = context.previous_gamma == 0
        tried = [gamma for gamma in self._space.gammas if gamma in means]

        def penalised(gamma: int) -> float:
            switch = context.switch_seconds / gamma if returning and gamma > 0 else 0.0
            return self._loss(means[gamma]) + switch

        return min(tried, key=penalised)

    def _loss(self, mean: _Mean) -> float:
        return mean.value if self._fidelity.mean_of == "loss" else 1 / mean.value


def _segments(arms: list[int]) -> tuple[Segment, ...]:
    """Run-length encoding."""
    segments: list[Segment] = []
    for arm in arms:
        if segments and segments[-1].gamma == arm:
            segments[-1] = Segment(arm, segments[-1].steps + 1)
        else:
            segments.append(Segment(arm, 1))
    return tuple(segments)
