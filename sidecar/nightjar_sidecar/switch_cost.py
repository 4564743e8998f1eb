"""What a return from no speculation costs: measured from reported catch-ups, or a fixed duration.

The draft's KV cache is stale after a spell at γ = 0. Its catch-up is work per stale token plus a start per
step that catches up, so both are fitted to the latest catch-ups, without those that some accident slowed.
"""

import math
from collections import deque

from nightjar_api.engine.v1.engine_pb2 import StepReport
from nightjar_sidecar.policies import least_squares
from nightjar_sidecar.policies.robust import location

_STEPS = 64
_RETURNS = 15
_FIT_EVERY = 16
# engine.catchUpTokens of a document that does not say otherwise.
_USUAL_LIMIT = 512
# A catch-up step that took so many times the usual seconds per token is an accident.
_ACCIDENT = 4.0


class SwitchCost:
    """`fixed_seconds` overrides the estimate; the measurements go on either way."""

    def __init__(self, fixed_seconds: float | None = None) -> None:
        self.fixed_seconds = fixed_seconds
        self.seconds_per_token = 0.0
        self.seconds_per_step = 0.0
        self.seconds_per_return = 0.0
        self.returns = 0
        self._steps: deque[tuple[int, float]] = deque(maxlen=_STEPS)
        self._returns: deque[float] = deque(maxlen=_RETURNS)
        self._unfitted = 0
        self._most_tokens = 0
        self._limit = 0
        self._last_gamma: int | None = None
        self.stale_tokens = 0
        self._return_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """What a return would cost now; 0 while nothing is stale or no catch-up was measured yet."""
        if self.fixed_seconds is not None:
            return self.fixed_seconds
        return self.seconds_per_step * self.steps + self.seconds_per_token * self.stale_tokens

    @property
    def steps(self) -> int:
        """Steps that a return would take now.

        How many tokens a step can catch up shows in steps that left some stale; while only small ones were seen,
        a prompt each, the engine's default is assumed.
        """
        if not self._steps:
            return 0
        return math.ceil(self.stale_tokens / (self._limit or max(_USUAL_LIMIT, self._most_tokens)))

    def observe(self, report: StepReport) -> None:
        """Take the next report of the engine into account."""
        self.stale_tokens = report.stale_tokens
        seconds = report.catch_up_ns * 1e-9
        if report.catch_up_tokens > 0 and seconds > 0:
            self._steps.append((report.catch_up_tokens, seconds))
            self._most_tokens = max(self._most_tokens, report.catch_up_tokens)
            if report.stale_tokens >= report.catch_up_tokens:
                self._limit = max(self._limit, report.catch_up_tokens)
            self._unfitted += 1
            # A prompt in every step brings a catch-up in every step; the fit need not follow each.
            if self._unfitted >= min(_FIT_EVERY, len(self._steps) // 4 + 1):
                self._fit()
        self._follow_return(report, seconds)
        self._last_gamma = report.gamma_drafted

    def restart(self) -> None:
        """Another engine serves from now on: no return is under way, nothing is stale."""
        self._last_gamma = None
        self.stale_tokens = 0
        self._return_seconds = None

    def _follow_return(self, report: StepReport, seconds: float) -> None:
        if report.gamma_drafted > 0 and self._last_gamma == 0:
            self._return_seconds = 0.0
        if self._return_seconds is None:
            return
        self._return_seconds += seconds
        if report.gamma_drafted == 0 or report.stale_tokens == 0:
            self._returns.append(self._return_seconds)
            self._return_seconds = None
            self.returns += 1
            self.seconds_per_return = location(self._returns)

    def _fit(self) -> None:
        self._unfitted = 0
        usual = location(seconds / tokens for tokens, seconds in self._steps)
        points = [
            ((1.0, float(tokens)), seconds, seconds**-2)
            for tokens, seconds in self._steps
            if seconds <= _ACCIDENT * usual * tokens or len(self._steps) < 4
        ]
        if points:
            self.seconds_per_step, self.seconds_per_token = least_squares.fit(points, 2)
