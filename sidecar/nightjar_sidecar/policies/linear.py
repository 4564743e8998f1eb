"""LinUCB and linear Thompson sampling, the paper's ablation, with features that can represent the matter.

The context is the batch: 1, b, b² and max(0, b - knee), b = batch / largest bucket; a line through the origin,
as in the published ablation, could not represent how speed falls with load. The reward is tokens per second
and request, as a share of the largest seen.
"""

import math
from collections.abc import Mapping, Sequence
from random import Random

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Choice, Context, Decision
from nightjar_sidecar.space import Space

_FEATURES = 4
_KNEE = 0.25
_RIDGE = 1.0
# Rewards are all positive, so an arm never pulled looks bad to a ridge: each is pulled so often first.
_FIRST_PULLS = 4


class _Arm:
    """Ridge regression, its inverse kept by rank-one updates."""

    def __init__(self) -> None:
        self.inverse = [[1.0 / _RIDGE * (i == j) for j in range(_FEATURES)] for i in range(_FEATURES)]
        self.weighted = [0.0] * _FEATURES
        self.theta = [0.0] * _FEATURES
        self.pulls = 0

    def add(self, features: Sequence[float], reward: float) -> None:
        self.pulls += 1
        along = _times(self.inverse, features)
        scale = 1 + _dot(features, along)
        for i, row in enumerate(self.inverse):
            for j in range(_FEATURES):
                row[j] -= along[i] * along[j] / scale
        self.weighted = [w + reward * x for w, x in zip(self.weighted, features, strict=True)]
        self.theta = _times(self.inverse, self.weighted)

    def mean(self, features: Sequence[float]) -> float:
        return _dot(self.theta, features)

    def width(self, features: Sequence[float]) -> float:
        return math.sqrt(max(0.0, _dot(features, _times(self.inverse, features))))


class _Linear:
    """What both share: arms, features, rewards."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._arms = [_Arm() for _ in space.gammas]
        self._largest = 0.0

    def score(self, context: Context) -> Mapping[int, float]:
        """Seconds per token of one request."""
        features = self._features(context.batch)
        means = [arm.mean(features) * self._largest for arm in self._arms]
        return {gamma: 1 / mean for gamma, mean in enumerate(means) if mean > 0}

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        gamma = min(self._space.gammas, key=lambda gamma: self._arms[gamma].pulls)
        if self._arms[gamma].pulls >= _FIRST_PULLS:
            gamma = self._best(self._features(context.batch))
        return Decision(gamma)

    def _best(self, features: Sequence[float]) -> int:
        raise NotImplementedError

    def learn(self, round_: Round) -> None:
        if round_.mixed or round_.seconds <= 0 or round_.tokens <= 0 or round_.gamma >= len(self._arms):
            return
        speed = round_.tokens / round_.batch / round_.seconds
        self._largest = max(self._largest, speed)
        self._arms[round_.gamma].add(self._features(round_.batch), speed / self._largest)

    def adopt(self, space: Space) -> None:
        kept = self._arms[: space.gamma_max + 1]
        self._arms = kept + [_Arm() for _ in range(space.gamma_max + 1 - len(kept))]
        self._space = space

    def _features(self, batch: int) -> tuple[float, ...]:
        share = min(1.0, batch / self._space.buckets[-1].high)
        return (1.0, share, share * share, max(0.0, share - _KNEE))


class LinUcb(_Linear):
    """The greatest mean + α · width."""

    def __init__(self, space: Space, alpha: float = 0.5) -> None:
        super().__init__(space)
        self._alpha = alpha

    def _best(self, features: Sequence[float]) -> int:
        bounds = [arm.mean(features) + self._alpha * arm.width(features) for arm in self._arms]
        return max(self._space.gammas, key=bounds.__getitem__)


class LinearTs(_Linear):
    """A draw of each arm's reward from its posterior, `spread` · width wide; one draw per round learnt of."""

    def __init__(self, space: Space, rng: Random, spread: float = 0.2) -> None:
        super().__init__(space)
        self._rng = rng
        self._spread = spread
        self._noise: list[float] | None = None

    def _best(self, features: Sequence[float]) -> int:
        if self._noise is None or len(self._noise) != len(self._arms):
            self._noise = [self._rng.gauss(0, self._spread) for _ in self._arms]
        draws = [
            arm.mean(features) + noise * arm.width(features) for arm, noise in zip(self._arms, self._noise, strict=True)
        ]
        return max(self._space.gammas, key=draws.__getitem__)

    def learn(self, round_: Round) -> None:
        self._noise = None
        super().learn(round_)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _times(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    return [_dot(row, vector) for row in matrix]
