"""How long speculation stays on after a return: what the return is amortised over."""

from nightjar_sidecar.space import Bucket

# Little, so that a return has to be worth it at once where none has shown how long speculation stays on.
_FIRST_GUESS_SECONDS = 1.0
_LEAST_SECONDS = 0.02
_MOST_SECONDS = 60.0
_WEIGHT_OF_LATEST = 0.5


class Dwell:
    """Mean length of the latest spells with speculation, by the bucket that they began in.

    Around break-even they are short and elsewhere long, so one mean for all would pay for the wrong returns.
    """

    def __init__(self) -> None:
        self._mean: dict[Bucket, float] = {}
        self._began: tuple[Bucket, int] | None = None

    def seconds(self, bucket: Bucket) -> float:
        """What a spell that begins in `bucket` is expected to last."""
        return max(_LEAST_SECONDS, self._mean.get(bucket, _FIRST_GUESS_SECONDS))

    def observe(self, bucket: Bucket, now_ns: int, *, speculating: bool) -> None:
        """Call for every round with whether the held length is above 0."""
        if speculating == (self._began is not None):
            return
        if self._began is None:
            self._began = bucket, now_ns
            return
        where, since_ns = self._began
        mean = self._mean.get(where, _FIRST_GUESS_SECONDS)
        lasted = min(_MOST_SECONDS, (now_ns - since_ns) * 1e-9)
        self._mean[where] = mean + _WEIGHT_OF_LATEST * (lasted - mean)
        self._began = None
