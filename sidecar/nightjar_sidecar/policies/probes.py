"""Probes: a few rounds at another length, when what they may win is worth what they cost. All in seconds.

What may be won: the improvement to be expected from a length, for as long again as it was not tried; so what is
new is tried soon, and what was found to be worse hardly ever. What it costs: the rounds at the loss that is to be
expected, and the catch-up. A probe is given up when it has cost more than it might win, or when its first rounds have
shown that the rest of it would: in a crowd each may take a second, and a whole return takes a dozen.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.protocol import Context
from nightjar_sidecar.space import Bucket

PROBE_STEPS = 4
# A return from 0 catches requests up one after the other, and those that are drafting already show what is
# accepted: so many drafts are enough to see it, however long a whole return takes.
SAMPLE_TRIALS = 24
# A single round may be an accident.
_ROUNDS_TO_SEE = 2
# A bucket is new for so many rounds.
_NEW_ROUNDS = 64
# Rounds of other lengths after which a probe is given up; one in another bucket counts for several.
_STRAYS = 40
_AWAY = 5


class Held(NamedTuple):
    """The length in use and its seconds per token of one request."""

    gamma: int
    cost: float


class Candidate(NamedTuple):
    """A length that may be better than the held one.

    `ratio` of its cost to the held length's is expected; what is accepted and how long a round takes are known up
    to the relative standard deviations `doubt_accepted` and `doubt_time`. A round takes `seconds`. It must win by
    more than `margin`, and was not tried for `untried_seconds` of serving. `news` are the seconds to be won because
    what is accepted may have changed unseen, `draft_seconds` what it takes a few requests to draft.
    """

    gamma: int
    ratio: float
    doubt_accepted: float
    doubt_time: float
    seconds: float
    margin: float
    untried_seconds: float
    news: float = 0.0
    draft_seconds: float = 0.0

    def win(self, doubt: float, seconds: float) -> float:
        """Seconds to be won in as many again, if a probe ends this much doubt."""
        return improvement(self.ratio / (1 - self.margin), doubt) * seconds + self.news


class Terms(NamedTuple):
    """What a probe costs and may win, in seconds, and how many steps it takes."""

    steps: int
    price: float
    win: float


@dataclass(slots=True)
class Probe:
    """An open probe: rounds of `gamma` that are still to come, what it has cost and what it may cost.

    It was opened for what may be won in `untried_seconds`; so far `rounds` verified drafts, of `trials` requests.
    """

    bucket: Bucket
    gamma: int
    steps: int
    limit: float
    from_zero: bool
    untried_seconds: float
    cost: float = 0.0
    rounds: int = 0
    trials: int = 0
    strays: int = 0


def improvement(ratio: float, doubt: float) -> float:
    """The expected share by which a cost falls below another: E[max(0, 1 - x)] for x normal around `ratio`."""
    sigma = ratio * doubt
    if sigma <= 0:
        return max(0.0, 1 - ratio)
    z = (1 - ratio) / sigma
    below = 0.5 * math.erfc(-z / math.sqrt(2))
    return sigma * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) + (1 - ratio) * below


def setback(candidate: Candidate, doubt: float) -> float:
    """Seconds that a round is expected to take beyond what its tokens would at the held length; a gain counts as 0."""
    return candidate.seconds / candidate.ratio * (improvement(candidate.ratio, doubt) + candidate.ratio - 1)


def terms(candidate: Candidate, held: Held, blind_seconds: float, context: Context) -> Terms:
    """What the best probe of `candidate` would come to; no draft was verified for `blind_seconds` of serving."""
    doubt = math.hypot(candidate.doubt_accepted, candidate.doubt_time)
    win = candidate.win(doubt, candidate.untried_seconds)
    a_round = setback(candidate, doubt)
    price = PROBE_STEPS * a_round
    if held.gamma > 0:
        if candidate.gamma == 0:
            price += context.catch_up_start_seconds + context.catch_up_seconds * context.batch * PROBE_STEPS
        return Terms(PROBE_STEPS, price, win)
    # Until all are caught up every step drafts for more requests: half of them on average, at half the loss.
    price += context.switch_seconds + context.switch_steps / 2 * a_round
    # Drafts are verified a step after they were made.
    whole = Terms(context.switch_steps + 1 + PROBE_STEPS, price, win)
    sample = _sample(candidate, blind_seconds, context)
    return max(sample, whole, key=lambda terms: terms.win - terms.price) if sample else whole


def _sample(candidate: Candidate, blind_seconds: float, context: Context) -> Terms | None:
    """A return from 0 that ends when enough requests were caught up to see what is accepted; None if that is all."""
    returning = context.switch_steps
    # Of each step's requests that were caught up, every later step has the drafts: a triangle of trials.
    steps = math.ceil(math.sqrt(2 * SAMPLE_TRIALS * returning / context.batch)) + 1
    if steps >= returning:
        return None
    seconds = min(blind_seconds, candidate.untried_seconds)
    price = steps * (context.switch_seconds / returning + candidate.draft_seconds)
    return Terms(steps, price, candidate.win(candidate.doubt_accepted, seconds))


class Probes:
    """At most one open probe, what all of them have cost, and for how long what was not tried."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.open: Probe | None = None
        # Serving time without a verified draft.
        self.blind_seconds = 0.0
        self._served: dict[Bucket, float] = defaultdict(float)
        self._rounds: dict[Bucket, int] = defaultdict(int)
        self._tried: dict[tuple[Bucket, int], float] = defaultdict(float)
        self._ended: dict[tuple[Bucket, int], int] = defaultdict(int)

    def tries(self, bucket: Bucket, gamma: int) -> int:
        """Probes of this cell so far."""
        return self._ended.get((bucket, gamma), 0)

    def knows(self, bucket: Bucket) -> bool:
        """Whether the bucket was served for a while."""
        return self._rounds[bucket] >= _NEW_ROUNDS

    def untried_seconds(self, bucket: Bucket, gamma: int) -> float:
        """Serving time in the bucket since this length was tried there."""
        return self._served[bucket] - self._tried.get((bucket, gamma), 0.0)

    def consider(self, bucket: Bucket, candidates: Iterable[Candidate], held: Held, context: Context) -> None:
        """Open a probe of the most profitable candidate, if any is."""
        most = 0.0
        for candidate in candidates:
            steps, price, win = terms(candidate, held, self.blind_seconds, context)
            if win - price > most:
                most = win - price
                self.open = Probe(
                    bucket, candidate.gamma, steps, win, held.gamma == 0, untried_seconds=candidate.untried_seconds
                )

    def reconsider(self, candidate: Candidate) -> None:
        """Give the open probe up if the rest of it is not worth what it costs, as its rounds have shown.

        `candidate` is its length as it looks now; not before enough drafts were verified to tell what is accepted.
        """
        probe = self.open
        if probe is None or probe.rounds < _ROUNDS_TO_SEE or probe.trials < SAMPLE_TRIALS:
            return
        doubt = math.hypot(candidate.doubt_accepted, candidate.doubt_time)
        if candidate.win(doubt, probe.untried_seconds) < probe.steps * setback(candidate, doubt):
            self._end(probe)

    def learn(self, bucket: Bucket, round_: Round, held_cost: float | None) -> None:
        """Account for a round; `held_cost` is what a token of one request costs at the held length."""
        self._served[bucket] += round_.wall_seconds
        self._rounds[bucket] += 1
        self.blind_seconds = 0.0 if round_.verified else self.blind_seconds + round_.wall_seconds
        if round_.typical:
            self._tried[bucket, round_.gamma] = self._served[bucket]
        probe = self.open
        if probe is None:
            return
        if bucket != probe.bucket:
            # The batch may never come back, and there is only one probe at a time.
            probe.strays += _AWAY
        else:
            self._charge(probe, round_, held_cost)
        if probe.steps <= 0 or probe.cost > probe.limit:
            self._end(probe)
        elif probe.strays >= _STRAYS:
            self._close(probe)

    def _end(self, probe: Probe) -> None:
        """It has shown what there was to see, or has cost enough."""
        self._ended[probe.bucket, probe.gamma] += 1
        self._close(probe)

    def _close(self, probe: Probe) -> None:
        self.open = None
        self._tried[probe.bucket, probe.gamma] = self._served[probe.bucket]

    def _charge(self, probe: Probe, round_: Round, held_cost: float | None) -> None:
        # A length above 0 reads prompts with its draft anyway.
        cost = round_.catch_up_seconds if probe.from_zero else 0.0
        if round_.gamma != probe.gamma:
            probe.strays += 1
        else:
            probe.steps -= 1
            probe.rounds += bool(round_.verified)
            probe.trials += round_.verified[0] if round_.verified else 0
            if held_cost is not None and not round_.mixed:
                worth = held_cost * round_.tokens / round_.batch
                cost += max(0.0, round_.wall_seconds - round_.catch_up_seconds - worth)
        probe.cost += cost
        self.seconds += cost
