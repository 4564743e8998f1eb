"""What every policy offers: score, predict, plan, learn.

A policy is a pure state machine: it sees rounds and contexts, never a clock or a socket (rounds carry the
engine's time), so the same class runs in the sidecar, in a simulator and over logs. State about visits
advances in `learn` only: reports come late, and a plan may be asked for any number of times in between.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.space import Space


class Segment(NamedTuple):
    """`steps` steps at the speculative length `gamma`."""

    gamma: int
    steps: int


class Choice(NamedTuple):
    """A length and the probability with which it was chosen, so that logs can be replayed off-policy."""

    gamma: int
    probability: float


@dataclass(frozen=True, slots=True)
class Context:
    """The situation a length is chosen for.

    `batch` requests decode; `previous_gamma` was used in the last round; `switch_seconds` is what a return
    from 0 to some length would cost now and `switch_steps` over how many steps it would be spread;
    `catch_up_seconds` is what one more token costs that the draft has to read before it can draft, and
    `catch_up_start_seconds` what a step costs in which it has to read any.
    """

    batch: int
    previous_gamma: int
    switch_seconds: float
    switch_steps: int = 0
    catch_up_seconds: float = 0.0
    catch_up_start_seconds: float = 0.0
    scheduled: int | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """For one bucket: segments to follow once, in order, and the length to hold after them."""

    hold: int
    schedule: tuple[Segment, ...] = ()
    probability: float = 1.0

    @property
    def choice(self) -> Choice:
        return Choice(self.schedule[0].gamma if self.schedule else self.hold, self.probability)


class Policy(Protocol):
    """Chooses a speculative length for a decode batch and learns from rounds."""

    def score(self, context: Context) -> Mapping[int, float]:
        """Seconds per token of one request, by length, as believed now; lengths without a belief are absent."""

    def predict(self, context: Context) -> Choice:
        """The length for the next round."""

    def plan(self, context: Context) -> Decision:
        """What the bucket of `context` should do until the next plan; asking again changes nothing."""

    def learn(self, round_: Round) -> None:
        """Take one round into account, whatever length it had."""

    def adopt(self, space: Space) -> None:
        """Choose among other lengths or buckets from now on; what was learnt about the kept ones stays."""
