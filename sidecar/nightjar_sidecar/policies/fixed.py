"""One length for every batch: classic speculative decoding."""

from collections.abc import Mapping
from dataclasses import dataclass

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Choice, Context, Decision
from nightjar_sidecar.space import Space


@dataclass(frozen=True, slots=True)
class Fixed:
    """Always `gamma`; 0 is no speculation at all."""

    gamma: int

    def score(self, context: Context) -> Mapping[int, float]:
        """Nothing is believed."""
        del context
        return {}

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        del context
        return Decision(self.gamma)

    def learn(self, round_: Round) -> None:
        """Nothing is learnt."""

    def adopt(self, space: Space) -> None:
        """The length does not depend on the space."""
