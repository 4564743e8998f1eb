"""What the time model remembers of rounds: locations of the latest ones, which a spike does not move."""

from collections import deque
from dataclasses import dataclass, field

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.robust import location

# Rounds a location is taken over: a spike moves nothing, a lasting change shows within half of them.
_WINDOW = 21
# Two spikes among so many rounds do not show any more.
ROUNDS_TO_BE_SURE = 8
# A cell not seen for so long keeps only its last rounds as a weak memory when it is seen again.
_STALE_NS = 60_000_000_000
_STALE_KEPT = 2
# A location moves little from one round to the next.
_SETTLE_EVERY = 4


@dataclass(frozen=True, slots=True)
class Reference:
    """Another length of the bucket as it was when a cell was last measured, to tell common drift."""

    gamma: int
    count: int
    seconds: float
    batch: float


@dataclass(slots=True)
class Cell:
    """Typical rounds of one bucket and length: (forward, draft, batch, when)."""

    samples: deque[tuple[float, float, float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    count: int = 0
    seen_ns: int = 0
    forward: float = 0.0
    draft: float = 0.0
    batch: float = 0.0
    seconds: float = 0.0
    # Measured over modelled, as of the model's latest fit: of a round, its pass and its drafting.
    level: float = 1.0
    forward_level: float = 1.0
    draft_level: float = 1.0
    reference: Reference | None = None

    def add(self, round_: Round, forward_seconds: float) -> None:
        if round_.time_ns - self.seen_ns > _STALE_NS:
            for _ in range(len(self.samples) - _STALE_KEPT):
                self.samples.popleft()
            self.count = len(self.samples)
        self.samples.append((forward_seconds, round_.draft_seconds, float(round_.batch), round_.time_ns))
        self.count += 1
        self.seen_ns = round_.time_ns
        if self.count <= _WINDOW or self.count % _SETTLE_EVERY == 0:
            self._settle()

    def scale(self, forward: float, draft: float, until_ns: int) -> None:
        """Rounds up to then would take so many times what they took; later ones show it already."""
        self.samples = deque(
            (
                (f * forward, d * draft, batch, when) if when <= until_ns else (f, d, batch, when)
                for f, d, batch, when in self.samples
            ),
            maxlen=_WINDOW,
        )
        self.reference = None
        self._settle()

    def keep_latest(self, rounds: int) -> None:
        """Forget all but so many."""
        while len(self.samples) > rounds:
            self.samples.popleft()
        self.count = len(self.samples)
        self.reference = None

    def _settle(self) -> None:
        forward, draft, batch, _ = zip(*self.samples, strict=True)
        self.forward, self.draft, self.batch = map(location, (forward, draft, batch))
        self.seconds = self.forward + self.draft


@dataclass(slots=True)
class Passes:
    """Rounds typical of no bucket, about alike in tokens.

    (all tokens, requests, forward, draft, requests that drafted, when).
    """

    samples: deque[tuple[float, float, float, float, float, int]] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    count: int = 0

    def add(self, round_: Round, tokens: float) -> None:
        drafting = float(round_.verified[0]) if round_.verified else 0.0
        self.samples.append(
            (tokens, float(round_.batch), round_.forward_seconds, round_.draft_seconds, drafting, round_.time_ns)
        )
        self.count += 1

    def scale(self, forward: float, draft: float, until_ns: int) -> None:
        """Passes up to then would take so many times what they took."""
        self.samples = deque(
            (
                (t, r, f * forward, d * draft, n, when) if when <= until_ns else (t, r, f, d, n, when)
                for t, r, f, d, n, when in self.samples
            ),
            maxlen=_WINDOW,
        )

    @property
    def weight(self) -> int:
        return min(self.count, ROUNDS_TO_BE_SURE)


@dataclass(slots=True)
class Host:
    """Time between steps in which neither model works; the same for every length."""

    samples: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        self.samples.append(seconds)
        self.seconds = location(self.samples)
