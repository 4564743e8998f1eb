"""What rounds have shown of each length in each bucket, whatever the policy makes of it: for people."""

import math
from dataclasses import dataclass

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.space import Bucket, Space

# About so many of an arm's latest rounds count; older ones may tell of other content.
_MEMORY_ROUNDS = 128
# Half the width of an interval that holds the mean 19 times out of 20: normal, and what Student's adds to it for few
# rounds, over their number less one.
_SIGMAS = 1.96
_SIGMAS_OF_FEW = (_SIGMAS**3 + _SIGMAS) / 4
_LEAST_ROUNDS = 5


@dataclass(slots=True)
class Arm:
    """Seconds per token of one request, over the rounds of one length in one bucket."""

    visits: int = 0
    mean: float = 0.0
    _variance: float = 0.0

    def add(self, seconds_per_token: float) -> None:
        self.visits += 1
        weight = 1 / min(self.visits, _MEMORY_ROUNDS)
        away = seconds_per_token - self.mean
        self.mean += weight * away
        self._variance = (1 - weight) * (self._variance + weight * away * away)

    @property
    def margin(self) -> float | None:
        """The mean is known to plus or minus so many seconds, with 95 % confidence; None while rounds are few."""
        if self.visits < _LEAST_ROUNDS:
            return None
        # A mean whose weights fade by 1 - 1/n is as good as that of 2n - 1 rounds of equal weight.
        free = min(self.visits, 2 * _MEMORY_ROUNDS - 1) - 1
        return (_SIGMAS + _SIGMAS_OF_FEW / free) * math.sqrt(self._variance / free)


_UNTRIED = Arm()


class Arms:
    """Rounds that prompts took much of are left out, as most policies do."""

    def __init__(self) -> None:
        self._arms: dict[tuple[Bucket, int], Arm] = {}

    def learn(self, bucket: Bucket, round_: Round) -> None:
        if round_.mixed or round_.tokens <= 0:
            return
        loss = round_.seconds * round_.batch / round_.tokens
        self._arms.setdefault((bucket, round_.gamma), Arm()).add(loss)

    def arm(self, bucket: Bucket, gamma: int) -> Arm:
        return self._arms.get((bucket, gamma), _UNTRIED)

    def keep(self, space: Space) -> None:
        """Forget buckets that are no more."""
        self._arms = {key: arm for key, arm in self._arms.items() if key[0] in space.buckets}
