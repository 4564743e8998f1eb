"""Nightjar's own policy: predict, choose, and probe only what could win.

Acceptance comes with full information from every round, times from a model that is corrected online, so
the length with the least predicted time per token is chosen, not searched for. A return from 0 is charged
its catch-up over the time that speculation is expected to stay on; hysteresis keeps noise from switching.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nightjar_sidecar.attribution import Round
from nightjar_sidecar.policies.acceptance import CONTENT_LASTS_NS, Acceptance
from nightjar_sidecar.policies.dwell import Dwell
from nightjar_sidecar.policies.probes import PROBE_STEPS, Candidate, Held, Probes
from nightjar_sidecar.policies.prompt_load import PromptLoad
from nightjar_sidecar.policies.protocol import Choice, Context, Decision, Segment
from nightjar_sidecar.policies.time_cells import ROUNDS_TO_BE_SURE
from nightjar_sidecar.policies.time_model import ROUNDS_TO_TRUST, TimeModel
from nightjar_sidecar.policies.turnover import Turnover
from nightjar_sidecar.space import Bucket, Space

# A challenger must be so much better: more where the switch itself costs.
_HYSTERESIS_ON_OFF = 0.03
_HYSTERESIS_LENGTH = 0.01
# What may be accepted of other content, given that all before was.
_OTHER_CONTENT = (0.3, 0.6, 0.9)
# Rounds for which a decision is kept, and without a probe before the next is thought of, where little is new any
# more: little changes from one to the next but by a change of content, and a decision takes time.
_DECIDE_EVERY = 8
# So many tokens are likely to bound a pass by arithmetic, where a wrong guess costs as much as a pass.
_CROWD_TOKENS = 256
_CONSIDER_EVERY = 32


@dataclass(slots=True)
class _State:
    """What a bucket holds now and what a token of one request costs there, as last believed."""

    decision: Decision
    cost: float | None = None
    # The round from which on it is decided anew.
    due: int = 0

    @property
    def held(self) -> int:
        return self.decision.hold


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What the policy is made of; each can be left out, to see what it is worth.

    `full_information`: one estimate of acceptance from all rounds, not one per length from its own rounds.
    `change_detection`: that estimate starts over when content changes. `prompts`: the draft's reading of prompts
    counts, and what is read again where blocks are short. `mixed_rounds`: rounds full of prompts teach the time model
    too. `switch_cost`: a return is charged over its dwell. `hysteresis`: a challenger must win by a margin. `guard`: a
    length is taken up only where it was measured or there is ground for a prediction. `probes`: what may win is tried.
    """

    full_information: bool = True
    change_detection: bool = True
    prompts: bool = True
    mixed_rounds: bool = True
    switch_cost: bool = True
    hysteresis: bool = True
    guard: bool = True
    probes: bool = True


ALL = Ingredients()


class Nightjar:
    """The default policy; deterministic, so every choice has probability 1."""

    def __init__(self, space: Space, ingredients: Ingredients = ALL) -> None:
        self._space = space
        self._with = ingredients
        self._acceptance = Acceptance(watchful=ingredients.change_detection)
        # One each when a length learns from its own rounds only.
        self._acceptance_of: dict[int, Acceptance] = {}
        self._times = TimeModel()
        self._probes = Probes()
        self._dwell = Dwell()
        self._prompts = PromptLoad()
        self._turnover = Turnover()
        self._state_by_bucket: dict[Bucket, _State] = {}
        # As of which fit of the time model, and which lengths.
        self._grounded_by_bucket: dict[Bucket, tuple[int, Sequence[int]]] = {}
        self._bucket: Bucket | None = None
        self._now_ns = 0
        self._rounds = 0
        self._rounds_to_consider = 0

    @property
    def probe_seconds(self) -> float:
        """What probes have cost so far, allowances included."""
        return self._probes.seconds

    def score(self, context: Context) -> Mapping[int, float]:
        """Seconds per token of one request, host time and the reading of prompts included."""
        return dict(enumerate(self._costs(self._space.bucket(context.batch), context)))

    def predict(self, context: Context) -> Choice:
        return self.plan(context).choice

    def plan(self, context: Context) -> Decision:
        bucket = self._space.bucket(context.batch)
        state = self._state_by_bucket.get(bucket)
        if state is None or state.due <= self._rounds:
            state = self._decide(bucket, context)
        probe = self._probes.open
        if probe is None or probe.bucket != bucket or probe.gamma == state.held:
            return state.decision
        return Decision(state.held, (Segment(probe.gamma, probe.steps),))

    def _decide(self, bucket: Bucket, context: Context) -> _State:
        costs = self._charged(bucket, self._costs(bucket, context), context)
        state = self._hold(bucket, costs)
        if state.cost is not None and self._with.probes and bucket == self._bucket:
            self._probe(bucket, Held(state.held, state.cost), costs, context)
        return state

    def _probe(self, bucket: Bucket, held: Held, costs: Sequence[float], context: Context) -> None:
        """See whether an open probe is still worth it, or, now and then, whether another length is worth one."""
        probe = self._probes.open
        if probe is not None and probe.bucket == bucket and probe.gamma != held.gamma:
            (candidate,) = self._candidates(bucket, [probe.gamma], held, costs, context)
            self._probes.reconsider(candidate)
        elif self._rounds_to_consider <= 0:
            self._rounds_to_consider = _CONSIDER_EVERY if self._probes.knows(bucket) else _DECIDE_EVERY
            others = [gamma for gamma in range(len(costs)) if gamma != held.gamma]
            self._probes.consider(bucket, self._candidates(bucket, others, held, costs, context), held, context)

    def learn(self, round_: Round) -> None:
        bucket = self._space.bucket(round_.batch)
        self._now_ns = round_.time_ns
        self._rounds_to_consider -= self._probes.open is None
        self._bucket = bucket
        if self._acceptance_for(round_.gamma).learn(round_.verified, round_.accepted, round_.time_ns):
            for each in self._state_by_bucket.values():
                each.due = 0
        if round_.typical and round_.gamma:
            self._turnover.observe(round_, self._acceptance_for(round_.gamma).tokens(round_.gamma)[-1])
        self._prompts.observe(round_.time_ns, round_.prompt_tokens, round_.tokens, round_.recomputed_tokens)
        if round_.typical:
            self._times.learn(bucket, round_)
        elif round_.forward_seconds > 0 and self._with.mixed_rounds:
            self._times.learn_passes(round_)
        state = self._state_by_bucket.get(bucket)
        probing = self._probes.open is not None
        self._probes.learn(bucket, round_, state.cost if state else None)
        self._rounds += 1
        if state is not None:
            if probing:
                state.due = self._rounds
            self._dwell.observe(bucket, round_.time_ns, speculating=state.held > 0)

    def adopt(self, space: Space) -> None:
        """A bucket that changed starts anew; acceptance and the smooth time model carry over."""
        self._times.keep(set(self._space.buckets) | set(space.buckets))
        self._probes.open = None
        self._bucket = None
        self._state_by_bucket.clear()
        self._grounded_by_bucket.clear()
        self._space = space

    def _costs(self, bucket: Bucket, context: Context) -> list[float]:
        """By length; empty while no round was timed."""
        seconds = self._times.lengths(bucket, self._space.gammas, context.batch)
        if seconds and self._with.prompts:
            return self._with_reading(seconds, context)
        return [each / tokens for each, tokens in zip(seconds, self._tokens(), strict=False)]

    def _with_reading(self, seconds: Sequence[float], context: Context) -> list[float]:
        """Costs of rounds of so many seconds and of what has to be read beside them."""
        # A draft that is used reads every prompt too; per emitted token, and a round gives `batch` of them.
        reading = context.batch * context.catch_up_seconds * self._prompts.per_emitted_token
        start = context.catch_up_start_seconds * self._prompts.share_of_rounds
        again = self._prompts.recomputed_per_round
        if again:
            # Requests are sent back as rounds go by, so the more a round gives the less is read again for it.
            times, batch = self._times, context.batch
            seconds = [each + times.prompt_seconds(gamma, batch, again) for gamma, each in enumerate(seconds)]
            start += again * context.catch_up_seconds
        costs = [(each + start) / tokens + reading for each, tokens in zip(seconds, self._tokens(), strict=True)]
        costs[0] = seconds[0]
        return costs

    def _charged(self, bucket: Bucket, costs: list[float], context: Context) -> list[float]:
        """Costs with the price of a return, when speculation is off now, over the time it will stay on."""
        if not self._with.switch_cost or not costs:
            return costs
        here = self._state_by_bucket.get(self._bucket) if self._bucket else None
        if (here.held if here else context.previous_gamma) > 0:
            return costs
        burden = 1 + context.switch_seconds / self._dwell.seconds(bucket)
        return [costs[0], *(cost * burden for cost in costs[1:])]

    def _hold(self, bucket: Bucket, costs: Sequence[float]) -> _State:
        before = self._state_by_bucket.get(bucket)
        grounded = {gamma: costs[gamma] for gamma in self._grounded(bucket)} if costs else {}
        first = min(grounded, key=grounded.__getitem__, default=self._first(bucket))
        held = before.held if before else first
        if held < len(costs):
            grounded[held] = costs[held]
            held = choose(grounded, held) if self._with.hysteresis else min(grounded, key=grounded.__getitem__)
        # While little is known each round may change it.
        known = self._times.count(bucket, held) >= ROUNDS_TO_BE_SURE
        state = _State(Decision(held), costs[held] if costs else None, self._rounds + (_DECIDE_EVERY if known else 1))
        self._state_by_bucket[bucket] = state
        return state

    def _first(self, bucket: Bucket) -> int:
        """While nothing was measured: the longest teaches most, unless a pass would verify a crowd of tokens."""
        return max(0, min(self._space.gamma_max, _CROWD_TOKENS // bucket.high - 1))

    def _grounded(self, bucket: Bucket) -> Sequence[int]:
        """Lengths whose cost may be acted upon: measured more than once or twice, or predicted with some ground."""
        if not self._with.guard:
            return self._space.gammas
        fit, gammas = self._grounded_by_bucket.get(bucket, (0, ()))
        times = self._times
        if fit != times.fits:
            gammas = tuple(
                gamma
                for gamma in self._space.gammas
                if times.count(bucket, gamma) >= ROUNDS_TO_TRUST or times.grounded(gamma)
            )
            self._grounded_by_bucket[bucket] = times.fits, gammas
        return gammas

    def _candidates(
        self, bucket: Bucket, gammas: Iterable[int], held: Held, costs: Sequence[float], context: Context
    ) -> list[Candidate]:
        tokens, doubts = self._tokens(), self._doubts(PROBE_STEPS * context.batch)
        candidates = []
        for gamma in gammas:
            expected = costs[gamma] * self._times.benefit_of_doubt(bucket, gamma)
            seconds = expected * tokens[gamma]
            candidates.append(
                Candidate(
                    gamma,
                    ratio=expected / held.cost,
                    doubt_accepted=doubts[gamma],
                    doubt_time=self._times.doubt(bucket, gamma, self._now_ns, self._probes.tries(bucket, gamma)),
                    seconds=seconds,
                    margin=margin(held.gamma, gamma),
                    untried_seconds=self._probes.untried_seconds(bucket, gamma),
                    news=self._news(gamma, seconds / held.cost) if held.gamma == 0 else 0.0,
                    draft_seconds=self._times.draft_seconds(gamma, 1),
                )
            )
        return candidates

    def _news(self, gamma: int, round_ratio: float) -> float:
        """Seconds to be won because content may have changed since drafts were last verified.

        `round_ratio` is a round's time over that of a token at 0.
        """
        changed = min(1.0, (self._now_ns - self._acceptance_for(gamma).seen_ns) / CONTENT_LASTS_NS)
        gains = (1 - round_ratio / sum(rate**i for i in range(gamma + 1)) for rate in _OTHER_CONTENT)
        gain = sum(max(0.0, each) for each in gains) / len(_OTHER_CONTENT)
        return changed * gain * self._probes.blind_seconds

    def _acceptance_for(self, gamma: int) -> Acceptance:
        if self._with.full_information:
            return self._acceptance
        return self._acceptance_of.setdefault(gamma, Acceptance(watchful=self._with.change_detection))

    def _tokens(self) -> Sequence[float]:
        most = self._space.gamma_max
        share = self._turnover.share
        if self._with.full_information:
            promised = self._acceptance.tokens(most)
        else:
            promised = [self._acceptance_for(gamma).tokens(most)[gamma] for gamma in self._space.gammas]
        return [1 + share * (tokens - 1) for tokens in promised]

    def _doubts(self, trials: int) -> Sequence[float]:
        most = self._space.gamma_max
        if self._with.full_information:
            return self._acceptance.doubts(most, trials)
        return [self._acceptance_for(gamma).doubts(most, trials)[gamma] for gamma in self._space.gammas]


def choose(costs: Mapping[int, float], held: int) -> int:
    """The length with the least cost, or `held` unless the best is better by more than the hysteresis."""
    best = min(costs, key=lambda gamma: (costs[gamma], gamma))
    return best if costs[best] < costs[held] * (1 - margin(held, best)) else held


def margin(held: int, challenger: int) -> float:
    """By which share a challenger must be better."""
    return _HYSTERESIS_ON_OFF if (held == 0) != (challenger == 0) else _HYSTERESIS_LENGTH
