"""Marks of what the draft has read, against a world in which what lies in every block is known."""

from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from nightjar_engine_patch.draft_blocks import DraftBlocks

BLOCK, BLOCKS = 2, 5


def scheduled(new=(), resumed=(), grown=(), finished=(), preempted=()):
    """`new` and `resumed`: (name, blocks, computed); `grown`: (name, blocks or None)."""
    cached = [*resumed, *((name, blocks, 0) for name, blocks in grown)]
    return SimpleNamespace(
        finished_req_ids=set(finished),
        preempted_req_ids=set(preempted) or None,
        scheduled_new_reqs=[
            SimpleNamespace(req_id=name, block_ids=(blocks,), num_computed_tokens=computed)
            for name, blocks, computed in new
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=[name for name, _, _ in cached],
            new_block_ids=[blocks and (blocks,) for _, blocks, _ in cached],
            num_computed_tokens=[computed for _, _, computed in cached],
            resumed_req_ids={name for name, _, _ in resumed},
        ),
    )


class World(RuleBasedStateMachine):
    """A block pool with a prefix cache, whose draft sometimes reads. A block's content: its tokens and all before."""

    def __init__(self):
        super().__init__()
        self.marks = DraftBlocks(BLOCK)
        self.free = list(range(BLOCKS))
        # What the target and the draft have in each block.
        self.target, self.draft = {}, {}
        self.running, self.count = {}, 0
        self.finished, self.preempted = set(), set()

    def schedule(self, **changes):
        output = scheduled(finished=self.finished, preempted=self.preempted, **changes)
        self.finished, self.preempted = set(), set()
        return self.marks.follow(output)

    def take(self, count):
        taken, self.free = self.free[:count], self.free[count:]
        for block in taken:
            self.target.pop(block, None)
        return taken

    def begin(self, name, tokens, *, resumed):
        """As vLLM: whole blocks from the cache, but never the last token."""
        contents = full_blocks(tokens[:-1])
        where = {content: block for block, content in self.target.items()}
        hits = []
        for content in contents:
            if content not in where:
                break
            hits.append(where[content])
        needed = -(-len(tokens) // BLOCK) - len(hits)
        if needed > len([block for block in self.free if block not in hits]):
            return
        self.free = [block for block in self.free if block not in hits]
        blocks = hits + self.take(needed)
        given = (name, blocks, len(hits) * BLOCK)
        found = self.schedule(resumed=[given]) if resumed else self.schedule(new=[given])
        assert found[name] % BLOCK == 0
        for block, content in zip(blocks[: found[name] // BLOCK], contents, strict=False):
            assert self.draft.get(block) == content, "the draft has read what it is said to have"
        self.running[name] = SimpleNamespace(tokens=tokens, prompt=len(tokens), blocks=blocks, read=False)
        self.computed(self.running[name])

    def computed(self, request):
        for block, content in zip(request.blocks, full_blocks(request.tokens), strict=False):
            self.target[block] = content

    @rule(start=st.integers(1, 2), length=st.integers(1, 3 * BLOCK + 1))
    def submit(self, start, length):
        self.count += 1
        self.begin(f"r{self.count}", [start] * length, resumed=False)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), tokens=st.integers(1, 2 * BLOCK))
    def generate(self, data, tokens):
        request = self.running[name := data.draw(st.sampled_from(sorted(self.running)))]
        needed = -(-(len(request.tokens) + tokens) // BLOCK) - len(request.blocks)
        if needed <= len(self.free):
            new = self.take(needed)
            self.schedule(grown=[(name, new or None)])
            request.blocks = request.blocks + new
            request.tokens = request.tokens + request.tokens[:1] * tokens
            self.computed(request)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def draft_reads(self, data):
        request = self.running[name := data.draw(st.sampled_from(sorted(self.running)))]
        for index, block in enumerate(request.blocks):
            self.draft[block] = tuple(request.tokens[: (index + 1) * BLOCK])
        assert self.marks.awaits(name) is not request.read
        if not request.read:
            self.marks.mark(name, request.prompt)
            request.read = True

    @precondition(lambda self: self.running)
    @rule(data=st.data(), preempt=st.booleans())
    def leave(self, data, preempt):
        name = data.draw(st.sampled_from(sorted(self.running)))
        request = self.running.pop(name)
        held = {block for other in self.running.values() for block in other.blocks}
        self.free += [block for block in reversed(request.blocks) if block not in held]
        (self.preempted if preempt else self.finished).add(name)
        if preempt:
            self.begin(name, request.tokens, resumed=True)

    @rule()
    def draft_leaves(self):
        self.draft.clear()
        self.marks.forget()
        for request in self.running.values():
            request.read = True


World.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestWorld = World.TestCase


def full_blocks(tokens):
    return [tuple(tokens[:end]) for end in range(BLOCK, len(tokens) + 1, BLOCK)]


@pytest.fixture
def marks():
    """Of a draft that has read a request in blocks 1 and 2."""
    marks = DraftBlocks(BLOCK)
    assert marks.follow(scheduled(new=[("first", [1, 2, 3], 0)])) == {"first": 0}
    marks.mark("first", 3 * BLOCK - 1)
    marks.follow(scheduled(finished=["first"]))
    return marks


def found(marks, blocks):
    """Of a new request with all but the last of its blocks from the cache."""
    return marks.follow(scheduled(new=[("last", blocks, (len(blocks) - 1) * BLOCK)]))["last"]


@pytest.mark.parametrize(("blocks", "read"), [([1, 2, 9], 2), ([1, 8, 9], 1), ([8, 2, 9], 0), ([1, 2, 3, 9], 2)])
def test_a_prompt_is_read_again_from_its_first_block_that_the_draft_has_not_read_whole(marks, blocks, read):
    assert found(marks, blocks) == read * BLOCK


def test_a_block_that_is_handed_out_again_is_unread(marks):
    marks.follow(scheduled(new=[("other", [2], 0)]))
    assert found(marks, [1, 2, 9]) == BLOCK


def test_a_block_that_a_running_request_grows_into_is_unread(marks):
    marks.follow(scheduled(new=[("other", [1, 7], BLOCK)]))
    marks.mark("other", BLOCK)
    marks.follow(scheduled(grown=[("other", [2])]))
    assert found(marks, [1, 2, 9]) == BLOCK


def test_a_prompt_that_grows_in_chunks_is_marked_as_a_whole(marks):
    marks.follow(scheduled(new=[("other", [5], 0)]))
    marks.follow(scheduled(grown=[("other", None)]))
    marks.follow(scheduled(grown=[("other", [6])]))
    marks.mark("other", 2 * BLOCK)
    assert found(marks, [5, 6, 9]) == 2 * BLOCK


@pytest.mark.parametrize("how", ["finished", "preempted"])
def test_who_leaves_is_awaited_no_more(marks, how):
    marks.follow(scheduled(new=[("other", [5], 0)]))
    assert marks.awaits("other")
    marks.follow(scheduled(**{how: ["other"]}))
    assert not marks.awaits_any


def test_with_several_kv_cache_groups_nothing_counts_as_read(marks):
    output = scheduled(new=[("other", [1, 2], BLOCK)])
    output.scheduled_new_reqs[0].block_ids = ([1, 2], [1, 2])
    assert marks.follow(output) == {"other": 0}
    marks.mark("other", 2 * BLOCK)
