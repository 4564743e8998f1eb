"""DSD, "Optimizing Speculative Decoding for Serving LLMs Using Goodput" (arXiv 2406.14066), as published.

The length with the greatest predicted goodput, from profiled times and one acceptance rate α: 0.7 at first,
then accepted / drafted over the engine's life. Two rules of the authors' code are kept: no speculation counts
1.1 times its goodput, and an α below 0.3 is replaced by 0.65. While nothing is drafted α cannot change.
"""

from collections.abc import Mapping
from typing import Protocol

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Choice, Context, Decision
from nightjar_sidecar.space import Space

_FIRST_ALPHA = 0.7
_LEAST_ALPHA = 0.3
_RESET_ALPHA = 0.65
_BIAS_TO_OFF = 1.1


class Profile(Protocol):
    """Seconds, measured at start-up."""

    def draft(self, gamma: int, batch: int) -> float:
        """To draft γ tokens for each request of a batch."""

    def forward(self, gamma: int, batch: int) -> float:
        """Of a target pass that verifies γ drafts for each, the host's share included."""


class Dsd:
    """Deterministic; one α for all batches."""

    def __init__(self, space: Space, profile: Profile) -> None:
        self._space = space
        self._profile = profile
        self._drafted = 0
        self._accepted = 0

    @property
    def alpha(self) -> float:
        if not self._drafted:
            return _FIRST_ALPHA
        alpha = self._accepted / self._drafted
        return alpha if alpha >= _LEAST_ALPHA else _RESET_ALPHA

    def score(self, context: Context) -> Mapping[int, float]:
        """Seconds per token of one request; that of 0 is divided by 1.1."""
        alpha, batch = min(self.alpha, 1 - 1e-9), context.batch
        costs = {}
        for gamma in self._space.gammas:
            tokens = (1 - alpha ** (gamma + 1)) / (1 - alpha)
            seconds = self._profile.draft(gamma, batch) + self._profile.forward(gamma, batch)
            costs[gamma] = seconds / tokens / (1.0 if gamma else _BIAS_TO_OFF)
        return costs

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        costs = self.score(context)
        return Decision(min(costs, key=costs.__getitem__))

    def learn(self, round_: Round) -> None:
        self._drafted += sum(round_.verified)
        self._accepted += sum(round_.accepted)

    def adopt(self, space: Space) -> None:
        self._space = space
