"""Acceptance by draft position, learnt with full information.

A round drafted with γ shows for every position below γ whether its draft was accepted, so no length has
to be tried to learn the acceptance of a shorter one. Batches share one estimate: acceptance depends on
what is generated, not on how many requests generate.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

# Memory in requests × rounds, and never more than so many rounds. Around break-even lengths differ by a percent, so
# rates have to be known as well; what changes at once is noticed apart.
_HALF_LIFE = 3000.0
_HALF_LIFE_ROUNDS = 100.0
# The latest trials only watch: when they contradict the memory, content has changed and the memory starts
# over from them. So a single user can soon change what a crowd has taught.
_WATCHED_TRIALS = 32.0
# So few of them can be enough, when the contradiction is great.
_FEWEST_TRIALS = 8.0
# Content lasts about so long. So a change within the milliseconds between two rounds takes a likelihood ratio of
# thousands to be believed, one that came unseen in seconds without a draft a much smaller one.
CONTENT_LASTS_NS = 100_000_000_000
# The likelihood of the rate that fits the latest trials best flatters them by so much.
_FLATTERY_NATS = 2.0
# One round is an accident now and then among thousands, and a memory that started over from it would believe it.
_FEWEST_ROUNDS = 2
# Looking takes time, and one trial more seldom decides.
_LOOK_EVERY_TRIALS = 4.0
_PRIOR_TRIALS = 4.0
_PRIOR_RATE = 0.7
# A position not seen for so long may have changed altogether; before, in proportion.
_FRESH_NS = 300_000_000_000


class _Trials(NamedTuple):
    """Of one round with so many requests, `gap_ns` after the last that was seen before."""

    requests: float
    trials: float
    successes: float
    gap_ns: int = 0


class _Position:
    """The chance that a draft is accepted given that all before it were.

    The latest rounds only watch; what leaves their window is discounted from then on. Both make up the estimate.
    """

    def __init__(self) -> None:
        self.seen_ns: int | None = None
        self._old_trials = 0.0
        self._old_successes = 0.0
        self._latest: deque[_Trials] = deque()
        self._latest_trials = 0.0
        self._latest_successes = 0.0
        self._unlooked_trials = 0.0

    @property
    def trials(self) -> float:
        return self._old_trials + self._latest_trials

    @property
    def successes(self) -> float:
        return self._old_successes + self._latest_successes

    def add(self, round_: _Trials, *, watchful: bool) -> bool:
        """Learn from one round; whether what is accepted has changed, if that is watched."""
        self._latest.append(round_)
        self._latest_trials += round_.trials
        self._latest_successes += round_.successes
        while len(self._latest) > _FEWEST_ROUNDS and self._latest_trials - self._latest[0].trials >= _WATCHED_TRIALS:
            self._age(self._latest.popleft())
        self._unlooked_trials += round_.trials
        if not watchful or self._unlooked_trials < _LOOK_EVERY_TRIALS:
            return False
        self._unlooked_trials = 0.0
        rounds = self._rounds_of_other_content()
        if not rounds:
            return False
        self._start_over(rounds)
        return True

    def shrink(self, trials: float) -> None:
        """Believe what was learnt no more than so many trials."""
        kept = min(self.trials, trials)
        self._old_successes = kept * self.successes / self.trials if self.trials else 0.0
        self._old_trials = kept
        self._latest.clear()
        self._latest_trials = self._latest_successes = 0.0

    def _age(self, round_: _Trials) -> None:
        keep = 0.5 ** max(round_.requests / _HALF_LIFE, 1 / _HALF_LIFE_ROUNDS)
        self._old_trials = keep * self._old_trials + round_.trials
        self._old_successes = keep * self._old_successes + round_.successes
        self._latest_trials -= round_.trials
        self._latest_successes -= round_.successes

    def _rounds_of_other_content(self) -> int:
        """So many of the latest rounds contradict the memory; 0 while none do.

        The test is the generalised likelihood ratio, at ends of the latest rounds that double in length, and where
        content had longest to change.
        """
        if self._old_trials < _WATCHED_TRIALS:
            return 0
        trials = successes = 0.0
        enough, longest_gap_ns = _FEWEST_TRIALS, 0
        for rounds, each in enumerate(reversed(self._latest), start=1):
            trials += each.trials
            successes += each.successes
            worth_a_look = trials >= enough or (trials >= _FEWEST_TRIALS and each.gap_ns > longest_gap_ns)
            longest_gap_ns = max(longest_gap_ns, each.gap_ns)
            if worth_a_look and rounds >= _FEWEST_ROUNDS:
                if _contradiction(self._old_trials, self._old_successes, trials, successes) > _alarm(each.gap_ns):
                    return rounds
                enough = max(enough, 2 * trials)
        return 0

    def _start_over(self, rounds: int) -> None:
        self._old_trials = self._old_successes = 0.0
        while len(self._latest) > rounds:
            gone = self._latest.popleft()
            self._latest_trials -= gone.trials
            self._latest_successes -= gone.successes


def _alarm(gap_ns: int) -> float:
    """The log likelihood ratio from which on content is believed to have changed within `gap_ns`."""
    return _FLATTERY_NATS + math.log(max(1.0, CONTENT_LASTS_NS / max(1, gap_ns)))


def _contradiction(trials: float, successes: float, other_trials: float, other_successes: float) -> float:
    """Log likelihood ratio of two rates against one for all trials."""
    both = _log_likelihood(trials + other_trials, successes + other_successes)
    return _log_likelihood(trials, successes) + _log_likelihood(other_trials, other_successes) - both


def _log_likelihood(trials: float, successes: float) -> float:
    failures = trials - successes
    found = successes * math.log(successes / trials) if successes > 0 else 0.0
    return found + failures * math.log(failures / trials) if failures > 0 else found


_NEVER_SEEN = _Position()


class Acceptance:
    """Estimates a_i, the share of requests whose drafts up to position i are all accepted."""

    def __init__(self, *, watchful: bool = True) -> None:
        self._watchful = watchful
        self._positions: list[_Position] = []
        self._tokens: dict[int, list[float]] = {}

    def learn(self, verified: Sequence[int], accepted: Sequence[int], now_ns: int) -> bool:
        """Requests that had a draft at each position verified, and accepted, in one round.

        Whether content has changed, as far as that is watched.
        """
        changed = False
        self._tokens.clear()
        while len(self._positions) < len(verified):
            self._positions.append(_Position())
        previous = reached = float(verified[0]) if verified else 0.0
        for index, (has, passed) in enumerate(zip(verified, accepted, strict=False)):
            if has == 0:
                break
            # Of the requests accepted so far, some may have had no further draft.
            trials = max(reached * has / previous, passed)
            position = self._positions[index]
            gap_ns = now_ns - position.seen_ns if position.seen_ns is not None else 0
            if position.add(_Trials(has, trials, passed, gap_ns), watchful=self._watchful):
                changed = True
                for later in self._positions[index + 1 :]:
                    later.shrink(_PRIOR_TRIALS)
            position.seen_ns = now_ns
            previous, reached = float(has), float(passed)
        return changed

    def rates(self, positions: int) -> list[float]:
        """a_0 … a_(positions-1); a position hardly seen is believed to be like the one before it."""
        return self._survival(positions, lambda _, conditional, __: conditional)

    def tokens(self, gamma_max: int) -> Sequence[float]:
        """Expected tokens per request and round, 1 + a_0 + … + a_(γ-1), for γ = 0 … gamma_max."""
        if gamma_max not in self._tokens:
            self._tokens[gamma_max] = _tokens(self.rates(gamma_max))
        return self._tokens[gamma_max]

    @property
    def seen_ns(self) -> int:
        """When drafts were last verified; 0 when never."""
        return self._positions[0].seen_ns or 0 if self._positions else 0

    def doubts(self, gamma_max: int, trials: float) -> Sequence[float]:
        """How far so many more trials at each position may move `tokens`, as relative standard deviations."""

        def bound(index: int, conditional: float, so_far: float) -> float:
            unseen = 1.0
            if index < len(self._positions) and (seen_ns := self._positions[index].seen_ns) is not None:
                # Positions not drafted for may have changed while shorter drafts were used.
                unseen = min(1.0, max(0, self.seen_ns - seen_ns) / _FRESH_NS)
            # What was seen often is moved little by a few trials more.
            likely = conditional + math.sqrt(conditional * (1 - conditional) / so_far * trials / (trials + so_far))
            return min(1.0, likely + (1 - conditional) * unseen / 2)

        optimistic = _tokens(self._survival(gamma_max, bound))
        return [most / tokens - 1 for most, tokens in zip(optimistic, self.tokens(gamma_max), strict=True)]

    def _survival(self, positions: int, view: Callable[[int, float, float], float]) -> list[float]:
        rates: list[float] = []
        conditional, survival = _PRIOR_RATE, 1.0
        for index in range(positions):
            known = self._positions[index] if index < len(self._positions) else _NEVER_SEEN
            trials = known.trials + _PRIOR_TRIALS
            conditional = (known.successes + _PRIOR_TRIALS * conditional) / trials
            survival *= view(index, conditional, trials)
            rates.append(survival)
        return rates


def _tokens(rates: Sequence[float]) -> list[float]:
    tokens = [1.0]
    for rate in rates:
        tokens.append(tokens[-1] + rate)
    return tokens
