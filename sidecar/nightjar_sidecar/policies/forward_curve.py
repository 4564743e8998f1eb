"""The target's forward time as a curve over verified tokens, and what each request costs beside its tokens.

What was measured with long drafts at small batches predicts short drafts at large ones: the pass sees
tokens. A line gives the trend and carries beyond what was seen; between measurements the ratio of measured
to line is interpolated, so that a knee or a jump past the captured graph sizes is kept.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nightjar_sidecar.policies import least_squares

_KNOTS_PER_OCTAVE = 2
# Passes of as many tokens must differ by this share of the largest batch to tell for half what a request costs:
# told by batches that are close, noise would be multiplied on the way to the largest.
_CONTRAST = 0.25


class Pass(NamedTuple):
    """So many tokens of so many requests took `seconds`, known by so much weight; all above 0."""

    tokens: float
    requests: float
    seconds: float
    weight: float


def knot(tokens: float) -> int:
    """Measurements of one knot are averaged."""
    return round(_KNOTS_PER_OCTAVE * math.log2(tokens))


class ForwardCurve:
    """`ForwardCurve(passes)(tokens, requests)` is seconds."""

    def __init__(self, passes: Iterable[Pass] = ()) -> None:
        passes = list(passes)
        self._per_request = _per_request(passes)
        passes = [_beside_requests(each, self._per_request) for each in passes]
        self._start, self._slope = _line(passes)
        knots = sorted(map(_mean, _near(passes)))
        # More tokens never take less time: a knot above a later one met an accident, so it is left out.
        sound: list[Pass] = []
        for each in reversed(knots):
            if not sound or each.seconds <= sound[0].seconds:
                sound.insert(0, each)
        self._tokens = [each.tokens for each in sound]
        self._ratios = [each.seconds / (self._start + self._slope * each.tokens) for each in sound]

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def __call__(self, tokens: float, requests: float) -> float:
        knots, ratios = self._tokens, self._ratios
        if not knots:
            return 0.0
        line = self._start + self._slope * tokens
        beside = self._per_request * requests
        right = bisect_left(knots, tokens)
        if right == 0:
            return line * ratios[0] + beside
        if right == len(knots):
            return line * ratios[-1] + beside
        share = (tokens - knots[right - 1]) / (knots[right] - knots[right - 1])
        return line * (ratios[right - 1] * (1 - share) + ratios[right] * share) + beside

    @property
    def has_slope(self) -> bool:
        """Whether measurements lie far enough apart to tell how time grows with tokens."""
        return bool(self._tokens) and self._tokens[-1] >= 2 * self._tokens[0]

    def octaves_away(self, tokens: float) -> float:
        """How far the nearest measurement is."""
        at = bisect_left(self._tokens, tokens)
        near = self._tokens[max(0, at - 1) : at + 1]
        return min((abs(math.log2(tokens / measured)) for measured in near), default=math.inf)


def _per_request(passes: Sequence[Pass]) -> float:
    """Seconds that a request costs beside its tokens: its context is read however many of its tokens are verified.

    Told by passes of about as many tokens that differ in requests; with one length everywhere nothing tells it.
    """
    if not passes:
        return 0.0
    start, slope = _line(passes)
    most = max(passes, key=lambda each: each.requests)
    known, products = (_CONTRAST * most.requests / most.seconds) ** 2, 0.0
    for group in _near(passes):
        usual = _mean(group)
        grows = slope / (start + slope * usual.tokens)
        for each in group:
            more = (each.requests - usual.requests) / usual.seconds
            longer = each.seconds / usual.seconds - 1 - grows * (each.tokens - usual.tokens)
            known += each.weight * more * more
            products += each.weight * more * longer
    # And at most half of what any pass took.
    return min(max(0.0, products / known), min(each.seconds / each.requests for each in passes) / 2)


def _beside_requests(each: Pass, per_request: float) -> Pass:
    return each._replace(seconds=each.seconds - per_request * each.requests)


def _line(passes: Iterable[Pass]) -> Sequence[float]:
    # Relative errors count: a small batch matters as much as a large one.
    points = (((1.0, each.tokens), each.seconds, each.weight * each.seconds**-2) for each in passes)
    return least_squares.fit(points, 2)


def _near(passes: Iterable[Pass]) -> Iterable[Sequence[Pass]]:
    """Passes of about as many tokens."""
    near: dict[int, list[Pass]] = {}
    for each in passes:
        near.setdefault(knot(each.tokens), []).append(each)
    return near.values()


def _mean(passes: Sequence[Pass]) -> Pass:
    weight = sum(each.weight for each in passes)
    tokens, requests, seconds = (sum(each.weight * each[value] for each in passes) / weight for value in range(3))
    return Pass(tokens, requests, seconds, weight)
