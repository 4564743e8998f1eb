"""The draft's time as a line over the requests that draft, each of γ passes alike."""

from collections.abc import Iterable

from nightjar_sidecar.policies import least_squares

# Batches must lie so far apart to tell how time grows with them: of two that are close the difference is noise, and a
# slope made of it would say at a crowd that drafting never pays, which nobody would then try.
_SPAN = 2


class DraftLine:
    """`DraftLine(points)(gamma, requests)` is seconds; points are (γ, requests, seconds, weight), all above 0."""

    def __init__(self, points: Iterable[tuple[int, float, float, float]] = ()) -> None:
        points = list(points)
        batches = [requests for _, requests, _, _ in points]
        self._most = max(batches, default=0.0)
        grows = bool(points) and self._most >= _SPAN * min(batches)
        self._start, self._slope = least_squares.fit(
            (
                # Relative errors count: a short draft matters as much as a long one.
                ((float(gamma), gamma * requests if grows else 0.0), seconds, weight * seconds**-2)
                for gamma, requests, seconds, weight in points
            ),
            2,
        )

    def __bool__(self) -> bool:
        return self._most > 0

    def __call__(self, gamma: int, requests: float) -> float:
        return gamma * (self._start + self._slope * requests)
