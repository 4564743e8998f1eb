"""One engine step, compiled: schedule, verify, draft.

The scheduler is vLLM's in outline: running requests first, a token budget, prompts in chunks, the latest
request sent back when blocks run short, nobody admitted in a step that sent somebody back. A step
verifies what the step before it drafted. Time is in seconds, `row` is a state.StepRow.
"""

import math

import numpy as np

from nightjar_benchmarks.simulator.jit import jit
from nightjar_benchmarks.simulator.state import Floats, Ints, Record, State

# What `begin` and `advance` return in place of a decode batch.
FINISHED = -1
TRACE_NEEDED = -2
POOL_TOO_SMALL = -3

ON_DEVICE, LEAVING, AWAY, RETURNING = 0, 1, 2, 3
# After a step that drafted, at most the last draft and the bonus token are unread.
_FRESH_LAG = 2
_POSITIONS = 8
_ROW_FIELDS = 22
# Histograms: bin = _BINS_PER_E · ln(seconds / _SHORTEST).
_SHORTEST = 1e-4
_BINS_PER_E = 16.0
_LAST_BIN = 255
_STRIDE = np.uint64(0x9E3779B97F4A7C15)


@jit
def _mixed(z: np.uint64) -> np.uint64:
    """Splitmix64's output function: a number in which every bit depends on all of `z`."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@jit
def _fraction(z: np.uint64) -> float:
    return float(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@jit
def _uniform(st: State) -> float:
    st.rng += _STRIDE
    return _fraction(_mixed(st.rng))


@jit
def _agreement(st: State, slot: int, token: int) -> float:
    """How hard a token of a request is to draft, uniform: content, so the same whatever the lengths that are chosen.

    Policies are then compared on the same luck.
    """
    request = _mixed(st.content_seed + np.uint64(st.number[slot]) * _STRIDE)
    return _fraction(_mixed(request + np.uint64(token) * _STRIDE))


@jit
def _noise(st: State) -> float:
    """A factor around 1, rarely a spike."""
    if st.noise == 0.0:
        return 1.0
    near_normal = (_uniform(st) + _uniform(st) + _uniform(st) + _uniform(st) - 2.0) * math.sqrt(3.0)
    factor = math.exp(st.noise * near_normal)
    return factor * st.spike if _uniform(st) < st.spike_chance else factor


@jit
def _reserve(st: State, slot: int, tokens: int) -> bool:
    """Whether blocks for `tokens` more tokens of a request could be had; they are taken."""
    need = (st.context[slot] + tokens + st.block_tokens - 1) // st.block_tokens - st.blocks[slot]
    if need > st.free_blocks:
        return False
    if need > 0:
        st.free_blocks -= need
        st.blocks[slot] += need
    return True


@jit
def _send_back_latest(st: State) -> None:
    """The latest request loses its blocks and will be computed again."""
    st.running -= 1
    slot = st.order[st.running]
    st.free_blocks += st.blocks[slot]
    st.blocks[slot] = 0
    st.prompt_left[slot] += st.context[slot]
    st.context[slot] = 0
    st.again[slot] = 1
    st.stale[slot] = 0
    st.drafts[slot] = 0
    st.sent_back_slots[st.sent_back] = slot
    st.sent_back += 1
    st.preemptions += 1


@jit
def _schedule_running(st: State, budget: int) -> int:
    index = 0
    while index < st.running:
        slot = st.order[index]
        tokens = st.prompt_left[slot] if st.prompt_left[slot] > 0 else 1 + st.drafts[slot]
        tokens = min(tokens, budget)
        if st.prompt_left[slot] == 0:
            st.drafts[slot] = max(tokens - 1, 0)
        while index < st.running and not _reserve(st, slot, tokens):
            _send_back_latest(st)
        if index < st.running:
            st.scheduled[slot] = tokens
            budget -= tokens
        index += 1
    return budget


@jit
def _place(st: State, index: int) -> int:
    """A request of the trace gets a slot."""
    slot = int(st.free_slot[st.free_slots - 1])
    st.prompt_left[slot] = st.prompt[index]
    st.context[slot] = 0
    st.left[slot] = st.output[index]
    st.done[slot] = 0
    st.region[slot] = st.region_of[index]
    st.again[slot] = 0
    st.stale[slot] = 0
    st.drafts[slot] = 0
    st.blocks[slot] = 0
    st.came[slot] = st.arrival[index]
    st.number[slot] = st.placed
    return slot


@jit
def _admit(st: State, budget: int) -> None:
    while st.running < st.max_batch and budget > 0:
        if st.sent_back > 0:
            slot = st.sent_back_slots[st.sent_back - 1]
        elif st.admitted < st.arrived:
            slot = _place(st, st.admitted)
        else:
            return
        tokens = min(st.prompt_left[slot], budget)
        if not _reserve(st, slot, tokens):
            return
        if st.sent_back > 0:
            st.sent_back -= 1
        else:
            st.admitted += 1
            st.placed += 1
            st.free_slots -= 1
        st.scheduled[slot] = tokens
        st.order[st.running] = slot
        st.running += 1
        budget -= tokens


@jit
def _count(st: State) -> None:
    """Who emits in the scheduled step, and what it computes."""
    batch = requests = prefill = recomputed = verify = 0
    for index in range(st.running):
        slot = st.order[index]
        tokens = st.scheduled[slot]
        st.emits[slot] = tokens > 0 and tokens >= st.prompt_left[slot]
        requests += tokens > 0
        batch += st.emits[slot]
        if st.prompt_left[slot] > 0:
            # A request whose prompt ends in this step emits with its last prompt token.
            prefill += tokens - st.emits[slot]
            recomputed += (tokens - st.emits[slot]) * st.again[slot]
        else:
            verify += max(tokens - 1, 0)
    st.batch, st.requests, st.verify_tokens = batch, requests, verify
    st.prefill_tokens, st.recomputed_tokens = prefill, recomputed


@jit
def _arrive(st: State) -> None:
    while st.arrived < st.known and st.arrival[st.arrived] <= st.now:
        st.arrived += 1
    while st.phase + 1 < st.phases and st.phase_start[st.phase + 1] <= st.now:
        st.phase += 1


@jit
def _schedule(st: State) -> int:
    """The decode batch of the next step, prompt-only steps being executed at once; or why there is none."""
    nothing = np.zeros(_ROW_FIELDS + 2 * _POSITIONS)
    while True:
        _arrive(st)
        if st.arrived == st.known and st.more:
            return TRACE_NEEDED
        if st.running == 0 and st.sent_back == 0 and st.admitted == st.arrived:
            if st.arrived == st.known:
                return FINISHED
            st.now = st.arrival[st.arrived]
            continue
        before = st.preemptions
        budget = _schedule_running(st, st.token_budget)
        if st.preemptions == before:
            _admit(st, budget)
        if st.running == 0:
            return POOL_TOO_SMALL
        _count(st)
        if st.batch > 0:
            return int(st.batch)
        _execute(st, 0, nothing)


@jit
def _lookup(table: Floats, per_request: float, batch: int) -> float:
    """Seconds at a mean of `per_request` drafts each."""
    low = int(per_request)
    share = per_request - low
    if share < 1e-9:
        return float(table[low, batch])
    return float(table[low, batch] * (1.0 - share) + table[low + 1, batch] * share)


@jit
def _forward_seconds(st: State) -> tuple[float, int]:
    batch = max(st.batch, 1)
    context = 0
    for index in range(st.running):
        slot = st.order[index]
        if st.emits[slot]:
            context += st.context[slot]
    seconds = _lookup(st.forward, st.verify_tokens / batch, batch)
    decoding = st.batch + st.verify_tokens
    most = len(st.by_tokens) - 1
    seconds += st.by_tokens[min(decoding + st.prefill_tokens, most)] - st.by_tokens[min(decoding, most)]
    seconds += st.kv_s * (context - st.base_context * st.batch)
    return max(seconds, 0.0) * st.phase_forward[st.phase] * _noise(st), context


@jit
def _bin(seconds: float) -> int:
    return min(max(int(_BINS_PER_E * math.log(max(seconds, 1e-9) / _SHORTEST)), 0), _LAST_BIN)


@jit
def _verify(st: State, slot: int, row: Floats) -> int:
    """Drafts of one request that are accepted."""
    region = st.region[slot]
    scale = st.phase_acceptance[st.phase, region]
    if st.half_context[region] > 0.0:
        scale *= 2.0 ** (-st.context[slot] / st.half_context[region])
    accepted = 0
    for position in range(st.drafts[slot]):
        row[_ROW_FIELDS + position] += 1.0
    token = st.done[slot]
    while accepted < st.drafts[slot] and _agreement(st, slot, token + accepted) < st.accept[region, accepted] * scale:
        row[_ROW_FIELDS + _POSITIONS + accepted] += 1.0
        accepted += 1
    return accepted


@jit
def _emit(st: State, end: float, row: Floats) -> int:
    """Every scheduled request goes on; those that are complete leave. Tokens given out."""
    kept = 0
    tokens = 0
    for index in range(st.running):
        slot = st.order[index]
        if not st.emits[slot]:
            st.context[slot] += st.scheduled[slot]
            st.prompt_left[slot] -= min(st.prompt_left[slot], st.scheduled[slot])
        elif st.prompt_left[slot] > 0:
            st.context[slot] += st.prompt_left[slot]
            st.prompt_left[slot] = 0
            st.again[slot] = 0
            st.stale[slot] = st.context[slot]
            given = 1
        else:
            drafted = st.drafts[slot]
            given = 1 + _verify(st, slot, row)
            st.context[slot] += given
            st.stale[slot] = 0 if drafted > 0 else st.stale[slot] + given
        st.drafts[slot] = 0
        st.scheduled[slot] = 0
        if st.emits[slot]:
            given = min(given, st.left[slot])
            tokens += given
            if st.done[slot] == 0:
                st.first_token[_bin(end - st.came[slot])] += 1
                st.first_token_sum += end - st.came[slot]
            st.done[slot] += given
            st.left[slot] -= given
            if st.left[slot] == 0:
                _leave(st, slot, end)
                continue
        st.order[kept] = slot
        kept += 1
    st.running = kept
    return tokens


@jit
def _leave(st: State, slot: int, end: float) -> None:
    st.free_blocks += st.blocks[slot]
    st.blocks[slot] = 0
    st.free_slot[st.free_slots] = slot
    st.free_slots += 1
    st.finished += 1
    st.latency[_bin((end - st.came[slot]) / st.done[slot])] += 1


@jit
def _draft(st: State, gamma: int) -> tuple[int, int]:
    """Requests that are up to date draft, others catch up within the budget; (drafting, caught up)."""
    drafting = 0
    budget = st.catch_up_budget
    for index in range(st.running):
        slot = st.order[index]
        if not st.emits[slot]:
            continue
        if st.stale[slot] > _FRESH_LAG:
            chunk = min(budget, st.stale[slot])
            budget -= chunk
            st.stale[slot] -= chunk
        if st.stale[slot] <= _FRESH_LAG:
            st.drafts[slot] = min(gamma, st.left[slot])
            drafting += 1
    return drafting, st.catch_up_budget - budget


@jit
def _cut_drafts(st: State) -> None:
    """Capacity selection: of all drafts the most likely to be reached are verified (TETRIS)."""
    capacity = st.verify_capacity
    likely = np.empty(st.running * _POSITIONS)
    count = 0
    for index in range(st.running):
        slot = st.order[index]
        survival = 1.0
        for position in range(st.drafts[slot]):
            survival *= st.accept[st.region[slot], position] * st.phase_acceptance[st.phase, st.region[slot]]
            likely[count] = survival
            count += 1
    if count <= capacity:
        return
    least = np.sort(likely[:count])[count - capacity]
    room = capacity
    for index in range(st.running):
        slot = st.order[index]
        survival = 1.0
        kept = 0
        for position in range(st.drafts[slot]):
            survival *= st.accept[st.region[slot], position] * st.phase_acceptance[st.phase, st.region[slot]]
            if survival < least or room == 0:
                break
            kept += 1
            room -= 1
        st.drafts[slot] = kept


@jit
def _move_memory(st: State, gamma: int) -> None:
    """The memory policy: the draft leaves when blocks run short at γ = 0, and comes back when they do not."""
    if st.residency in (LEAVING, RETURNING):
        if st.now >= st.residency_until:
            if st.residency == LEAVING:
                st.total_blocks += st.draft_blocks
                st.free_blocks += st.draft_blocks
            st.residency = AWAY if st.residency == LEAVING else ON_DEVICE
            st.residency_since = st.now
        return
    waiting = st.arrived - st.admitted + st.sent_back
    st.short_steps = st.short_steps + 1 if gamma == 0 and st.free_blocks < st.tau_low else 0
    if st.now - st.residency_since < st.dwell_s:
        return
    if st.residency == ON_DEVICE and st.short_steps >= st.persist_steps:
        st.residency, st.residency_until = LEAVING, st.now + st.expand_s
        st.expansions += 1
    elif st.residency == AWAY and waiting == 0 and st.free_blocks > st.draft_blocks + st.tau_low:
        st.total_blocks -= st.draft_blocks
        st.free_blocks -= st.draft_blocks
        st.residency, st.residency_until = RETURNING, st.now + st.squeeze_s
        st.squeezes += 1


@jit
def _account(st: State, seconds: float, tokens: int) -> None:
    in_system = st.running + st.sent_back + st.arrived - st.admitted
    for half in range(1 + (st.step > st.warm_steps)):
        st.seconds[half, st.phase] += seconds
        st.in_system[half, st.phase] += seconds * in_system
        st.decoding[half, st.phase] += seconds * st.batch
        st.tokens[half, st.phase] += tokens
        st.steps[half, st.phase] += 1


@jit
def _execute(st: State, gamma: int, row: Floats) -> None:
    """Run the scheduled step and draft `gamma` tokens for the next."""
    if st.residency != ON_DEVICE:
        gamma = 0
    in_system_before = st.running
    row[:] = 0.0
    st.step += 1
    batch, verify, prefill, recomputed = st.batch, st.verify_tokens, st.prefill_tokens, st.recomputed_tokens
    forward, context = _forward_seconds(st)
    st.prompt_tokens += prefill
    st.recomputed_since += recomputed
    tokens = _emit(st, st.now + st.host_s + forward, row)
    drafting = caught_up = stale = 0
    draft_seconds = catch_up_seconds = 0.0
    if gamma > 0:
        drafting, caught_up = _draft(st, gamma)
        if drafting > 0:
            draft_seconds = st.draft[gamma, drafting] + gamma * st.draft_kv_s * (context - st.base_context * batch)
            draft_seconds = max(draft_seconds, 0.0) * st.phase_draft[st.phase] * _noise(st)
        if caught_up > 0:
            catch_up_seconds = (st.catch_up_start_s + st.catch_up_token_s * caught_up) * st.phase_draft[st.phase]
        if st.verify_capacity > 0:
            _cut_drafts(st)
    for index in range(st.running):
        slot = st.order[index]
        stale += st.stale[slot]
    seconds = st.host_s + forward + draft_seconds + catch_up_seconds
    st.switches += (gamma > 0) != (st.gamma_drafted > 0)
    row[0], row[1], row[2] = st.step, st.now + seconds, batch
    row[3] = st.gamma_drafted if verify > 0 else 0
    row[4] = st.drafted_at_step if verify > 0 else 0
    row[5] = st.draft_seconds if verify > 0 else 0.0
    row[6], row[7] = forward, tokens
    share = prefill / (prefill + batch + verify) if prefill > 0 else 0.0
    row[8] = max(share, st.draft_prefill_share) if verify > 0 else share
    row[9] = st.prompt_tokens
    row[10], row[11], row[12] = catch_up_seconds, caught_up, stale
    row[13], row[14], row[15] = gamma, draft_seconds, prefill
    row[19], row[20] = recomputed, st.recomputed_since
    after = st.running
    st.running = in_system_before
    _account(st, seconds, tokens)
    st.running = after
    st.now += seconds
    if batch > 0:
        st.prompt_tokens = 0
        st.recomputed_since = 0
    st.gamma_drafted, st.draft_seconds, st.draft_prefill_share = gamma, draft_seconds, share
    st.drafted_at_step = st.step
    if st.elastic:
        _move_memory(st, gamma)
    row[16], row[17], row[18] = st.free_blocks, st.arrived - st.admitted + st.sent_back, st.residency


@jit
def begin(state: Record) -> int:
    """Schedule the first step, or the one after more of the trace was given."""
    return _schedule(state[0])


@jit
def advance(state: Record, row: Floats, gamma: int) -> int:
    """Run the scheduled step, with `gamma` to draft, and schedule the next."""
    st = state[0]
    _execute(st, gamma, row)
    batch = _schedule(st)
    row[21] = st.requests
    return batch


@jit
def follow(state: Record, row: Floats, gammas: Ints, by_requests: int, most_steps: int) -> int:
    """`advance` by a table γ[phase, decode batch or scheduled requests] for at most so many steps."""
    st = state[0]
    batch = int(st.batch)
    for _ in range(most_steps):
        index = st.requests if by_requests else batch
        _execute(st, gammas[st.phase, index], row)
        batch = _schedule(st)
        if batch <= 0:
            break
    return batch
