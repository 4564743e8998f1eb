"""BanditSpec (arXiv 2505.15141): UCB and EXP3 over speculative lengths, blind to the batch.

The reward is tokens per second and request, scaled to [0, 1] by the largest seen: the paper's own reward,
accepted tokens per call, would always choose the longest length in a server.
"""

import math
from collections.abc import Mapping
from random import Random

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Choice, Context, Decision
from nightjar_sidecar.space import Space

_DELTA = 0.5
_MIXING = 0.02


class _Scale:
    """Rewards as shares of the largest so far."""

    def __init__(self) -> None:
        self.largest = 0.0

    def reward(self, round_: Round) -> float | None:
        """None for a round that says nothing about decoding."""
        if round_.mixed or round_.tokens <= 0 or round_.seconds <= 0:
            return None
        speed = round_.tokens / round_.batch / round_.seconds
        self.largest = max(self.largest, speed)
        return speed / self.largest


class BanditSpecUcb:
    """UCBSpec: every length once, then the greatest mean + ½ √((1+n)/n² · (1 + 2 ln(K t² √(1+n) / δ)))."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._scale = _Scale()
        self._count: dict[int, int] = {}
        self._mean: dict[int, float] = {}
        self._rounds = 0

    def score(self, context: Context) -> Mapping[int, float]:
        """Seconds per token of one request, whatever the batch."""
        del context
        largest = self._scale.largest
        return {g: 1 / (mean * largest) for g, mean in self._mean.items() if mean > 0 and g in self._space.gammas}

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        del context
        return Decision(max(self._space.gammas, key=self._bound))

    def learn(self, round_: Round) -> None:
        reward = self._scale.reward(round_)
        if reward is None:
            return
        gamma = round_.gamma
        self._rounds += 1
        self._count[gamma] = self._count.get(gamma, 0) + 1
        mean = self._mean.get(gamma, 0.0)
        self._mean[gamma] = mean + (reward - mean) / self._count[gamma]

    def adopt(self, space: Space) -> None:
        self._space = space

    def _bound(self, gamma: int) -> float:
        count = self._count.get(gamma, 0)
        if count == 0:
            return math.inf
        arms = self._space.gamma_max + 1
        inside = 1 + 2 * math.log(arms * self._rounds**2 * math.sqrt(1 + count) / _DELTA)
        return self._mean[gamma] + 0.5 * math.sqrt((1 + count) / count**2 * inside)


class BanditSpecExp3:
    """EXP3Spec with importance-weighted losses, an anytime rate and a little uniform mixing."""

    def __init__(self, space: Space, rng: Random) -> None:
        self._space = space
        self._rng = rng
        self._scale = _Scale()
        self._losses = [0.0] * (space.gamma_max + 1)
        self._rounds = 1
        self._drawn: int | None = None

    def score(self, context: Context) -> Mapping[int, float]:
        """Nothing is believed about seconds."""
        del context
        return {}

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        """One draw per round that is learnt of."""
        del context
        chances = self.probabilities()
        if self._drawn is None:
            self._drawn = self._rng.choices(range(len(chances)), chances)[0]
        return Decision(self._drawn, probability=chances[self._drawn])

    def probabilities(self) -> list[float]:
        arms = len(self._losses)
        rate = math.sqrt(math.log(arms) / (arms * self._rounds)) if arms > 1 else 0.0
        least = min(self._losses)
        weights = [math.exp(-rate * (loss - least)) for loss in self._losses]
        total = sum(weights)
        return [(1 - _MIXING) * weight / total + _MIXING / arms for weight in weights]

    def learn(self, round_: Round) -> None:
        self._drawn = None
        reward = self._scale.reward(round_)
        if reward is None or round_.gamma >= len(self._losses):
            return
        self._losses[round_.gamma] += (1 - reward) / self.probabilities()[round_.gamma]
        self._rounds += 1

    def adopt(self, space: Space) -> None:
        """Lengths that are new begin as good as the best."""
        arms = space.gamma_max + 1
        kept = self._losses[:arms]
        self._losses = kept + [min(kept)] * (arms - len(kept))
        self._space = space
        self._drawn = None
