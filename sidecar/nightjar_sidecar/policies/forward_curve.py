"""The target's forward time as a curve over verified tokens.

What was measured with long drafts at small batches predicts short drafts at large ones: the pass sees
tokens. A line gives the trend and carries beyond what was seen; between measurements the ratio of measured
to line is interpolated, so that a knee or a jump past the captured graph sizes is kept.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from nightjar_sidecar.policies import least_squares

_KNOTS_PER_OCTAVE = 2
_BELOW = 4
_ABOVE = 2


def knot(tokens: float) -> int:
    """Measurements of one knot are averaged."""
    return round(_KNOTS_PER_OCTAVE * math.log2(tokens))


class ForwardCurve:
    """`ForwardCurve(points)(tokens)` is seconds; points are (tokens, seconds, weight), all above 0."""

    def __init__(self, points: Iterable[tuple[float, float, float]] = ()) -> None:
        points = list(points)
        # Relative errors count: a small batch matters as much as a large one.
        self._start, self._slope = least_squares.fit(
            (((1.0, tokens), seconds, weight * seconds**-2) for tokens, seconds, weight in points), 2
        )
        near: dict[int, list[tuple[float, float, float]]] = {}
        for point in points:
            near.setdefault(knot(point[0]), []).append(point)
        knots = sorted(_mean(group) for group in near.values())
        # More tokens never take less time: a knot above a later one met an accident, so it is left out.
        sound: list[tuple[float, float]] = []
        for tokens, seconds in reversed(knots):
            if not sound or seconds <= sound[0][1]:
                sound.insert(0, (tokens, seconds))
        self._tokens = [tokens for tokens, _ in sound]
        self._ratios = [seconds / (self._start + self._slope * tokens) for tokens, seconds in sound]

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def __call__(self, tokens: float) -> float:
        knots, ratios = self._tokens, self._ratios
        if not knots:
            return 0.0
        line = self._start + self._slope * tokens
        right = bisect_left(knots, tokens)
        if right == 0:
            return line * ratios[0]
        if right == len(knots):
            return line * ratios[-1]
        share = (tokens - knots[right - 1]) / (knots[right] - knots[right - 1])
        return line * (ratios[right - 1] * (1 - share) + ratios[right] * share)

    @property
    def has_slope(self) -> bool:
        """Whether measurements lie far enough apart to tell how time grows with tokens."""
        return bool(self._tokens) and self._tokens[-1] >= 2 * self._tokens[0]

    def covers(self, tokens: float) -> bool:
        """Whether `tokens` lie between measurements, or not too far outside them.

        Below the least the pass is nearly flat, above the most a line leads only so far.
        """
        return self.has_slope and self._tokens[0] / _BELOW <= tokens <= self._tokens[-1] * _ABOVE

    def octaves_away(self, tokens: float) -> float:
        """How far the nearest measurement is."""
        at = bisect_left(self._tokens, tokens)
        near = self._tokens[max(0, at - 1) : at + 1]
        return min((abs(math.log2(tokens / measured)) for measured in near), default=math.inf)


def _mean(points: Sequence[tuple[float, float, float]]) -> tuple[float, float]:
    whole = sum(weight for _, _, weight in points)
    return (
        sum(tokens * weight for tokens, _, weight in points) / whole,
        sum(seconds * weight for _, seconds, weight in points) / whole,
    )
