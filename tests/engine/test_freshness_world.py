"""Draft freshness in a toy engine: whatever happens to requests, the record of what the draft has read is true.

The toy draft's KV holds, at each position, everything that was read up to there, so an entry written for another
token, or behind one, is told apart. Its proposals depend on nothing else.
"""

from dataclasses import dataclass, field
from random import Random

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from nightjar_engine_patch.freshness import FRESH_LAG, DraftFreshness, Feed, append_sampled, plan_feeds

SLOTS = 3
GAMMA_MAX = 4
CONTEXT = 28
TOKENS = 2  # so few that drafts are often right, and wrong ones sometimes by chance
UNWRITTEN = "unwritten"
seeds = st.integers(0, 2**32)


@dataclass(eq=False)
class Request:
    name: str
    tokens: list[int]
    computed: int = 0
    drafts: list[int] = field(default_factory=list)
    kv: list[object] = field(default_factory=lambda: [UNWRITTEN] * CONTEXT)
    proposed: bool = False

    def read(self, start, tokens):
        for position, token in enumerate(tokens, start):
            self.kv[position] = entry(self.kv[position - 1] if position else None, token)

    def forget_kv(self):
        self.kv = [UNWRITTEN] * CONTEXT
        self.computed = 0
        self.drafts = []
        self.proposed = False


def entry(before, token):
    return hash((before, token))


def chain(tokens):
    """The entries of a draft that has read exactly `tokens`."""
    entries = [entry(None, tokens[0])]
    for token in tokens[1:]:
        entries.append(entry(entries[-1], token))
    return entries


def proposal(last_entry):
    return last_entry % TOKENS


class Engine(RuleBasedStateMachine):
    """Requests join, leave, are preempted and go on as sessions; every step verifies, and drafts or does not."""

    def __init__(self):
        super().__init__()
        self.freshness = DraftFreshness(SLOTS, GAMMA_MAX)
        self.running = []
        self.waiting = []
        # What vLLM tells the worker with its next step.
        self.gone = []
        self.count = 0

    @precondition(lambda self: len(self.waiting) < 4)
    @rule(length=st.integers(1, 12), seed=seeds)
    def submit(self, length, seed):
        self.count += 1
        self.waiting.append(Request(f"r{self.count}", Random(seed).choices(range(TOKENS), k=length)))

    @precondition(lambda self: self.running or self.waiting)
    @rule(seed=seeds)
    def abort(self, seed):
        request = Random(seed).choice(self.running + self.waiting)
        (self.running if request in self.running else self.waiting).remove(request)
        self.gone.append(request.name)

    @precondition(lambda self: self.running)
    @rule(seed=seeds)
    def preempt(self, seed):
        request = self.running.pop(Random(seed).randrange(len(self.running)))
        request.forget_kv()
        self.gone.append(request.name)
        self.waiting.insert(0, request)

    @precondition(lambda self: self.running)
    @rule(seed=seeds, more=st.integers(1, 4))
    def go_on_as_a_session(self, seed, more):
        """The last token is replaced and a new prompt follows; the blocks stay."""
        random = Random(seed)
        request = random.choice(self.running)
        if request.computed < len(request.tokens) - 1 or len(request.tokens) + more >= CONTEXT:
            return
        request.tokens[-1:] = random.choices(range(TOKENS), k=more)
        request.drafts = []
        request.proposed = False
        self.gone.append(request.name)

    @rule(gamma=st.sampled_from([0, 0, 1, 2, 3, GAMMA_MAX]), budget=st.sampled_from([1, 2, 5, 16, 99]), seed=seeds)
    def step(self, gamma, budget, seed):
        random = Random(seed)
        self.freshness.forget(self.gone)
        self.gone = []
        while self.waiting and len(self.running) < SLOTS:
            # Whatever the policy: a preempted request may have to wait for newer ones.
            self.running.append(self.waiting.pop(random.randrange(len(self.waiting))))
        rows = [request for request in self.running if random.random() < 0.85]
        random.shuffle(rows)
        if not rows:
            return
        sampled = [self.verify(request, random) for request in rows]
        if gamma > 0:
            self.propose(rows, sampled, gamma, budget)
        for request in self.running:
            if request not in rows or not request.proposed or gamma == 0:
                request.drafts = []
        for request, new in zip(rows, sampled, strict=True):
            request.proposed = request.proposed and gamma > 0
            request.tokens += new
            if len(request.tokens) == CONTEXT or random.random() < 0.03:
                self.running.remove(request)
                self.gone.append(request.name)

    def verify(self, request, random):
        """The request's new tokens: none while its prefill goes on, else the drafts that are right and one more."""
        left = len(request.tokens) - request.computed
        if left > 1 and random.random() < 0.5:
            request.computed += random.randrange(1, left)
            return []
        # Structured output and the step's token budget cut drafts off.
        drafts = request.drafts[: random.choice([0, 1, GAMMA_MAX, GAMMA_MAX])]
        drafts = drafts[: CONTEXT - len(request.tokens) - 1]
        truth = random.choices(range(TOKENS), k=len(drafts) + 1)
        right = next((i for i, draft in enumerate(drafts) if draft != truth[i]), len(drafts))
        request.computed = len(request.tokens) + right
        return truth[: right + 1]

    def propose(self, rows, sampled, gamma, budget):
        """As NightjarCPUModelRunner._propose."""
        tokens = np.full((len(rows), CONTEXT), -5, dtype=np.int32)
        padded = np.full((len(rows), GAMMA_MAX + 1), -1, dtype=np.int32)
        for row, (request, new) in enumerate(zip(rows, sampled, strict=True)):
            # Behind the known tokens stand the drafts that were verified just now.
            text = request.tokens + request.drafts
            tokens[row, : len(text)] = text
            padded[row, : len(new)] = new
        counts = np.array([len(request.tokens) for request in rows], dtype=np.int32)
        prefilling = np.array([not new for new in sampled])
        padded[prefilling] = 1  # vLLM samples for such rows too, and throws it away
        known = append_sampled(tokens, padded, counts, prefilling, TOKENS)
        assert known.tolist() == [len(r.tokens) + len(new) for r, new in zip(rows, sampled, strict=True)]

        slots = self.freshness.slots([request.name for request in rows])
        read = self.freshness.settle(slots, tokens, known)
        longest = CONTEXT - 1 - gamma
        plan = plan_feeds(read, known, prefilling, longest, budget)
        self.check_plan(plan, rows, read, known, ~prefilling & (known <= longest), budget)
        self.feed(rows, tokens, plan.catch_up)
        self.freshness.record(slots[plan.catch_up.rows], plan.catch_up.end)
        self.draft(rows, tokens, slots, plan.newest, gamma)

    def check_plan(self, plan, rows, read, known, eligible, budget):
        assert plan.catch_up.tokens <= budget
        assert plan.newest.tokens <= FRESH_LAG * len(plan.newest)
        stale = np.maximum(known - 1 - read, 0)
        behind = np.flatnonzero(eligible & (stale >= FRESH_LAG))
        assert set(np.flatnonzero(eligible)) - set(behind) <= set(plan.newest.rows)
        if len(behind):
            assert plan.catch_up.rows[0] == behind[0]
            assert plan.catch_up.end[0] - plan.catch_up.start[0] == min(stale[behind[0]], budget)
        for row in np.flatnonzero(eligible):
            assert not rows[row].proposed or row in plan.newest.rows, "who is fresh stays fresh"

    def feed(self, rows, tokens, feed):
        for row, start, end in zip(feed.rows, feed.start, feed.end, strict=True):
            rows[row].read(start, tokens[row, start:end].tolist())

    def draft(self, rows, tokens, slots, newest, gamma):
        proposing = [rows[row] for row in newest.rows]
        drafts = np.empty((len(proposing), gamma), dtype=np.int32)
        feed = newest
        for index in range(gamma):
            self.feed(rows, tokens, feed)
            drafts[:, index] = [proposal(request.kv[end - 1]) for request, end in zip(proposing, feed.end, strict=True)]
            if index + 1 < gamma:
                tokens[feed.rows, feed.end] = drafts[:, index]
                feed = Feed(feed.rows, feed.end, feed.end + 1)
        self.freshness.record(slots[newest.rows], newest.end)
        self.freshness.record_drafts(slots[newest.rows], drafts[:, :-1])
        for request in rows:
            request.proposed = False
        for request, row, end, proposed in zip(proposing, newest.rows, newest.end, drafts.tolist(), strict=True):
            request.drafts = proposed
            request.proposed = True
            text = tokens[row, :end].tolist()
            for draft in proposed:
                assert draft == proposal(chain(text)[-1]), "as a draft that has just read everything"
                text.append(draft)

    @invariant()
    def what_counts_as_read_was_read_for_these_very_tokens(self):
        for request in self.running:
            slot = self.freshness._slot_of.get(request.name)
            if slot is None or request.name in self.gone:
                continue
            read = self.freshness._read[slot]
            assert request.kv[:read] == chain(request.tokens)[:read]

    @invariant()
    def slots_are_used_once_and_only_by_requests_that_run(self):
        used = self.freshness._slot_of
        assert sorted([*used.values(), *self.freshness._free]) == list(range(SLOTS))
        assert set(used) <= {request.name for request in self.running} | set(self.gone)
        assert self.freshness.total_read == sum(self.freshness._read[slot] for slot in used.values())


TestEngine = Engine.TestCase
# Seeds do not shrink to anything that is easier to read.
TestEngine.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, phases=(Phase.reuse, Phase.generate)
)
