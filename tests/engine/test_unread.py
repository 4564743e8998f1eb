"""Bounds on what a draft has not read, against a world in which everything is known."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_engine_patch.gpu.unread import FRESH, Unread, plan_draft

SLOTS, GAMMA = 4, 3


class Request:
    """Positions of the draft's KV that are right, as the device would find them."""

    def __init__(self, prompt, cached, read):
        self.prompt, self.computed = prompt, cached
        self.right = set(range(read))
        self.in_flight = 0

    @property
    def unread(self):
        """Back from what is computed to the first token that was not read: all behind it is read again."""
        return self.computed - next((at for at in range(self.computed) if at not in self.right), self.computed)


@settings(deadline=None, max_examples=300)
@given(data=st.data())
def test_no_request_drafts_on_tokens_its_draft_never_read(data):
    unread, world = Unread(SLOTS), {}
    for _ in range(data.draw(st.integers(1, 30))):
        for slot in range(SLOTS):
            if slot not in world and data.draw(st.booleans()):
                prompt = data.draw(st.integers(1, 40))
                # The last token of a prompt is always computed.
                cached = data.draw(st.integers(0, prompt - 1))
                read = data.draw(st.integers(0, cached))
                world[slot] = Request(prompt, cached, read)
                unread.start(slot, cached - read)
            elif slot in world and data.draw(st.integers(0, 9)) == 0:
                del world[slot]
        # A request may find no room in a step, and then loses its drafts.
        chosen = [slot for slot in world if data.draw(st.integers(0, 5))]
        for slot in set(world) - set(chosen):
            world[slot].in_flight = 0
        if chosen:
            step(unread, [world[slot] for slot in chosen], np.array(chosen), data)


def step(unread, requests, slots, data):
    gamma = data.draw(st.integers(0, GAMMA))
    scheduled, bounds, prefilling = [], [], []
    for request in requests:
        decodes = request.computed >= request.prompt
        tokens = 1 + request.in_flight if decodes else data.draw(st.integers(1, request.prompt - request.computed))
        # What the host believes: as if every draft in flight had been accepted.
        bounds.append(request.computed + data.draw(st.integers(0, GAMMA)))
        scheduled.append(tokens)
        accepted = data.draw(st.integers(0, request.in_flight)) if decodes else 0
        # What the last step drafted was read while drafting, all but its last token.
        request.right -= {at for at in request.right if at >= request.computed + accepted + 1}
        request.computed += 1 + accepted if decodes else tokens
        request.in_flight = 0
        prefilling.append(request.computed < request.prompt)
    scheduled, bounds = np.array(scheduled, dtype=np.int32), np.array(bounds, dtype=np.int32)
    left = unread.step(slots, scheduled, bounds)
    assert all(mine >= request.unread for mine, request in zip(left, requests, strict=True))
    if gamma == 0:
        return
    plan = plan_draft(left, np.array(prefilling), np.ones(len(requests), dtype=bool), data.draw(st.integers(1, 60)))
    unread.read(slots, plan.pieces)
    for row, request in enumerate(requests):
        first = max(request.computed - int(left[row]), 0)
        request.right |= set(range(first, min(first + int(plan.pieces[row]), request.computed)))
        if plan.drafting[row]:
            assert request.unread <= FRESH
            # The first pass reads the last computed token and the newest; then each draft but the last is read.
            request.right |= {request.computed - 1, *range(request.computed, request.computed + gamma)}
        # All requests of a step are given as many drafts, whoever proposed them.
        request.in_flight = 0 if prefilling[row] else gamma
    unread.draft(slots[plan.drafting])


@given(
    unread=st.lists(st.integers(0, 50), min_size=1, max_size=8),
    budget=st.integers(0, 100),
    data=st.data(),
)
def test_a_step_reads_within_its_budget_and_never_keeps_the_fresh_waiting(unread, budget, data):
    flags = st.lists(st.booleans(), min_size=len(unread), max_size=len(unread)).map(np.array)
    prefilling, room = data.draw(flags), data.draw(flags)
    unread = np.array(unread, dtype=np.int32)
    plan = plan_draft(unread, prefilling, room, budget)
    assert plan.pieces.sum() <= budget
    assert (plan.pieces <= unread).all()
    assert not plan.pieces[~room].any()
    assert plan.drafting[room & ~prefilling & (unread <= FRESH)].all()
    assert not plan.drafting[~room | prefilling].any()
    wanted = np.where(room & (prefilling | (unread > FRESH)), unread, 0).sum()
    assert plan.pieces.sum() == min(budget, wanted), "nothing of the budget is left while somebody wants it"
