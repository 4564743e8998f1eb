"""What the lengths that were used cost beyond the best one, as the policy itself believes: an estimate, no measurement.

A round at γ gave a request so many tokens. The policy predicts what a token takes at each length; the regret is by how
much sooner the length with the least prediction would have given the same tokens. Whoever chose γ counts alike: the
plan, a probe, the engine's fallback. The price of switching is no part of it, so what hysteresis and the wait for a
return cost shows. A policy that is wrong about its best length does not know, and reports no regret.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nightjar_sidecar.attribution import Round

Believed = Mapping[int, float]
"""Seconds per token of one request, by length."""

# About so many of the latest rounds count for people; Prometheus counts all.
_MEMORY_ROUNDS = 1024
# Rounds for which beliefs are taken to hold: to ask for them takes time, and little changes from one to the next.
_ASK_EVERY = 8


class Lost(NamedTuple):
    """Predicted seconds of a round: those beyond the best length's, and all."""

    seconds: float
    predicted: float


def lost(believed: Believed, round_: Round) -> Lost | None:
    """None where there is no estimate.

    That is when the policy has no prediction for the length that was used or none to compare it with, and for rounds
    that prompts took much of.
    """
    if len(believed) < 2 or round_.gamma not in believed or round_.mixed or round_.tokens <= 0:
        return None
    tokens = round_.tokens / round_.batch
    used = believed[round_.gamma]
    return Lost(tokens * (used - min(believed.values())), tokens * used)


class Regret:
    """Of one policy."""

    def __init__(self) -> None:
        self.rounds = 0
        # Means over rounds.
        self._seconds = 0.0
        self._predicted = 0.0
        self._believed_by_batch: dict[int, Believed] = {}
        self._ask_in = 0

    @property
    def share(self) -> float | None:
        """Of the predicted time of the latest rounds; None before the first estimate."""
        return self._seconds / self._predicted if self._predicted else None

    def observe(self, round_: Round, believed: Callable[[int], Believed]) -> Lost | None:
        """Take a round into account, by what is `believed` of its batch."""
        if self._ask_in == 0:
            self._believed_by_batch.clear()
            self._ask_in = _ASK_EVERY
        self._ask_in -= 1
        if round_.batch not in self._believed_by_batch:
            self._believed_by_batch[round_.batch] = believed(round_.batch)
        found = lost(self._believed_by_batch[round_.batch], round_)
        if found is not None:
            self.rounds += 1
            weight = 1 / min(self.rounds, _MEMORY_ROUNDS)
            self._seconds += weight * (found.seconds - self._seconds)
            self._predicted += weight * (found.predicted - self._predicted)
        return found
