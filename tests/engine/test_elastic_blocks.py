"""The block pool grows and shrinks under requests: vLLM's own KV cache manager, and memory that is migrated with it."""

import warnings
from itertools import accumulate, count

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from nightjar_engine_patch.errors import IntegrityError, PoolBusyError
from nightjar_engine_patch.gpu.elastic_memory import lookup_after
from nightjar_kernels.block_table_remap import remap_block_tables
from nightjar_kernels.kv_migrate import migrate_blocks
from nightjar_kernels.moves import block_moves

with warnings.catch_warnings():
    # Importing vLLM warns of its own use of torch.
    warnings.simplefilter("ignore")
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.core.kv_cache_metrics import KVCacheMetricsCollector
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request

    from nightjar_engine_patch.elastic.blocks import ElasticBlocks
    from nightjar_engine_patch.elastic.integrity import check_integrity

BLOCK = 4
FEW, MANY = 14, 22
LONGEST = 40
PROMPTS = [[1] * LONGEST, [1] * 8 + [2] * LONGEST, [3, 4] * LONGEST]


class Engine:
    """A manager, its requests, and what each token's slot must hold: a number that depends on all tokens before."""

    def __init__(self, *, caching=True):
        init_none_hash(sha256)
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        config = KVCacheConfig(num_blocks=FEW, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)])
        self.manager = KVCacheManager(
            config,
            max_model_len=LONGEST + BLOCK,
            scheduler_block_size=BLOCK,
            hash_block_size=BLOCK,
            enable_caching=caching,
            enable_kv_cache_events=caching,
            # Every block is sampled, so that records keyed by id are many.
            metrics_collector=KVCacheMetricsCollector(sample_rate=1.0),
        )
        self.pool = self.manager.block_pool
        self.blocks = ElasticBlocks(self.manager)
        self.memory = torch.full((1, MANY, BLOCK), -1, dtype=torch.int64)
        self.running = {}
        self.waiting = []
        self.moved = 0
        self._names = count()
        self._hasher = get_request_block_hasher(BLOCK, sha256)

    def add(self, prompt):
        name = str(next(self._names))
        request = Request(name, prompt, SamplingParams(max_tokens=LONGEST), None, block_hasher=self._hasher)
        self.waiting.append(request)
        return request

    def admit(self, request):
        """The whole prompt in one step, what the prefix cache holds aside; False when there is no room."""
        blocks, cached, _ = self.manager.get_computed_blocks(request)
        if self.manager.allocate_slots(request, request.num_tokens - cached, cached, blocks) is None:
            return False
        self.waiting.remove(request)
        self.running[request.request_id] = request
        self._write(request, cached)
        return True

    def decode(self, request, token):
        request.append_output_token_ids(token)
        if self.manager.allocate_slots(request, 1) is None:
            self.preempt(request)
        else:
            self._write(request, request.num_tokens - 1)

    def finish(self, request):
        del self.running[request.request_id]
        self.manager.free(request)

    def preempt(self, request):
        self.finish(request)
        request.num_computed_tokens = 0
        self.waiting.append(request)

    def squeeze(self):
        moves = self.blocks.shrink(FEW)
        migrate_blocks(self.memory, block_moves(moves, num_blocks=MANY, device="cpu"))
        self.memory[:, FEW:] = -1
        self.moved += len(moves)
        return moves

    def ids(self, request):
        (ids,) = self.manager.get_block_ids(request.request_id)
        return ids

    def check(self):
        check_integrity(self.manager, self.blocks.withdrawn)
        for request in self.running.values():
            held = self.memory[0, self.ids(request)].flatten()[: request.num_tokens].tolist()
            assert held == values(request)

    def _write(self, request, start):
        table = self.ids(request)
        for position, value in list(enumerate(values(request)))[start:]:
            self.memory[0, table[position // BLOCK], position % BLOCK] = value
        request.num_computed_tokens = request.num_tokens


def values(request):
    return list(accumulate(request.all_token_ids, lambda value, token: (value * 31 + token) % 2**61))


class Life(RuleBasedStateMachine):
    """Requests come, decode, end and lose their blocks, while the pool grows and shrinks."""

    @initialize(caching=st.sampled_from([True, True, False]))
    def start(self, caching):
        self.engine = Engine(caching=caching)

    @rule(prompt=st.sampled_from(PROMPTS), length=st.integers(1, LONGEST - BLOCK))
    def a_request_comes(self, prompt, length):
        self.engine.admit(self.engine.add(prompt[:length]))

    @precondition(lambda self: self.engine.waiting)
    @rule(data=st.data())
    def a_waiting_request_is_tried_again(self, data):
        self.engine.admit(data.draw(st.sampled_from(self.engine.waiting)))

    @precondition(lambda self: self.engine.running)
    @rule(token=st.integers(1, 4), data=st.data())
    def a_request_decodes(self, token, data):
        request = data.draw(st.sampled_from(list(self.engine.running.values())))
        if request.num_tokens < LONGEST:
            self.engine.decode(request, token)

    @precondition(lambda self: self.engine.running)
    @rule(data=st.data())
    def a_request_ends(self, data):
        self.engine.finish(data.draw(st.sampled_from(list(self.engine.running.values()))))

    @precondition(lambda self: self.engine.running)
    @rule(data=st.data())
    def a_request_is_preempted(self, data):
        self.engine.preempt(data.draw(st.sampled_from(list(self.engine.running.values()))))

    @precondition(lambda self: self.engine.pool.num_gpu_blocks == FEW)
    @rule()
    def the_pool_expands(self):
        free = self.engine.pool.get_num_free_blocks()
        self.engine.blocks.grow(MANY)
        assert self.engine.pool.get_num_free_blocks() == free + MANY - FEW

    @precondition(lambda self: self.engine.pool.num_gpu_blocks == MANY)
    @rule(most=st.integers(1, 4))
    def some_blocks_are_withdrawn(self, most):
        free, before = self.engine.pool.get_num_free_blocks(), len(self.engine.blocks.withdrawn)
        missing = MANY - FEW - before
        if free < missing:
            with pytest.raises(PoolBusyError, match=f"{missing} free blocks are required .* found {free}"):
                self.engine.blocks.withdraw(FEW, most)
            assert len(self.engine.blocks.withdrawn) == before
        else:
            taken = min(most, missing)
            assert self.engine.blocks.withdraw(FEW, most) == (taken == missing)
            assert self.engine.pool.get_num_free_blocks() == free - taken

    @precondition(lambda self: self.engine.blocks.withdrawn)
    @rule()
    def what_was_withdrawn_is_given_back(self):
        free, back = self.engine.pool.get_num_free_blocks(), len(self.engine.blocks.withdrawn)
        self.engine.blocks.give_back()
        assert self.engine.pool.get_num_free_blocks() == free + back

    @precondition(lambda self: self.engine.pool.num_gpu_blocks == MANY)
    @rule()
    def the_pool_is_squeezed(self):
        free, before = self.engine.pool.get_num_free_blocks(), len(self.engine.blocks.withdrawn)
        missing = MANY - FEW - before
        if free < missing:
            with pytest.raises(PoolBusyError, match=f"{missing} free blocks are required .* found {free}"):
                self.engine.squeeze()
            assert self.engine.pool.num_gpu_blocks == MANY
        else:
            self.engine.squeeze()
            assert self.engine.pool.get_num_free_blocks() == free - missing
            assert not self.engine.blocks.withdrawn

    @precondition(lambda self: not (self.engine.running or self.engine.blocks.withdrawn))
    @rule()
    def the_prefix_cache_is_reset(self):
        assert self.engine.manager.reset_prefix_cache()

    @invariant()
    def everything_agrees(self):
        if hasattr(self, "engine"):
            self.engine.check()


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


@pytest.fixture
def crowded():
    """Expanded, and every block above the old end in use."""
    engine = Engine()
    engine.blocks.grow(MANY)
    requests = [engine.add([10 + i] * (2 * BLOCK)) for i in range((MANY - 1) // 2)]
    assert all(engine.admit(request) for request in requests)
    engine.check()
    return engine


def test_used_blocks_of_the_tail_move_below_with_their_contents(crowded):
    high = [r for r in crowded.running.values() if min(crowded.ids(r)) >= FEW]
    low = [r for r in crowded.running.values() if max(crowded.ids(r)) < FEW]
    assert len(high) == 4
    for request in low[:4]:
        crowded.finish(request)
    moves = crowded.squeeze()
    crowded.check()
    assert len(moves) == len({block for move in moves for block in move}) // 2 == 8
    assert all(old >= FEW > new > 0 for old, new in moves)
    assert crowded.pool.num_gpu_blocks == len(crowded.pool.blocks) == FEW


def test_usage_counts_the_blocks_there_are(crowded):
    assert crowded.manager.usage == pytest.approx(20 / 21)
    for request in list(crowded.running.values())[:5]:
        crowded.finish(request)
    crowded.squeeze()
    assert crowded.manager.usage == pytest.approx(10 / 13)


def test_what_a_moved_block_holds_is_still_found_in_the_prefix_cache(crowded):
    last, *others = list(crowded.running.values())
    assert min(crowded.ids(last)) >= FEW
    prompt = list(last.all_token_ids)
    # A squeeze gives up the oldest of what is cached.
    for request in [*others, last]:
        crowded.finish(request)
    assert len(crowded.squeeze()) >= 2
    again = crowded.add([*prompt, 7])
    _, cached, _ = crowded.manager.get_computed_blocks(again)
    assert cached == len(prompt)
    assert crowded.admit(again)
    crowded.check()


def test_what_is_given_up_is_reported_as_gone_from_the_prefix_cache(crowded):
    for request in list(crowded.running.values()):
        crowded.finish(request)
    crowded.manager.take_events()
    held = len(crowded.pool.cached_block_hash_to_block)
    crowded.squeeze()
    removed = sum(len(event.block_hashes) for event in crowded.manager.take_events())
    # One block was never used; it is given up first.
    assert removed == held - len(crowded.pool.cached_block_hash_to_block) == MANY - FEW - 1


def test_a_squeeze_without_room_changes_nothing(crowded):
    before = [crowded.ids(request) for request in crowded.running.values()]
    with pytest.raises(PoolBusyError, match="8 free blocks are required to give them back, found 1"):
        crowded.squeeze()
    assert [crowded.ids(request) for request in crowded.running.values()] == before
    crowded.check()


def test_more_memory_than_before_can_be_used_at_once():
    engine = Engine()
    requests = [engine.add([10 + i] * (2 * BLOCK)) for i in range(10)]
    assert [engine.admit(request) for request in requests] == [True] * 6 + [False] * 4
    engine.blocks.grow(MANY)
    assert [engine.admit(request) for request in requests[6:]] == [True] * 4
    engine.check()


@pytest.mark.parametrize("later", [MANY - 2, MANY, MANY + 2])
def test_the_pool_grows_again_by_the_blocks_that_it_lost(crowded, later):
    """Made anew they would hold up the step in which they come: a large pool has thousands."""
    for request in list(crowded.running.values())[:4]:
        crowded.finish(request)
    before = {id(block) for block in crowded.pool.blocks}
    crowded.squeeze()
    crowded.blocks.grow(later)
    crowded.check()
    assert len({id(block) for block in crowded.pool.blocks} - before) == max(0, later - MANY)
    new = crowded.add([99] * (2 * BLOCK))
    assert crowded.admit(new)
    crowded.check()


@pytest.mark.parametrize("breakage", ["reference", "hash", "order", "count", "record"])
def test_the_integrity_check_finds_what_is_wrong(crowded, breakage):
    pool = crowded.pool
    block = crowded.pool.blocks[5]
    match breakage:
        case "reference":
            block.ref_cnt += 1
        case "hash":
            pool.cached_block_hash_to_block.pop(block.block_hash, block.block_id)
        case "order":
            pool.blocks[5], pool.blocks[6] = pool.blocks[6], pool.blocks[5]
        case "count":
            pool.free_block_queue.num_free_blocks += 1
        case "record":
            pool.metrics_collector.block_metrics[MANY] = None
    with pytest.raises(IntegrityError):
        check_integrity(crowded.manager)


def test_tables_that_only_a_gpu_knows_name_the_schedulers_blocks_after_a_squeeze():
    """There no list of ids is kept on the host: the tables themselves are rewritten, stale ends of rows included."""
    engine = Engine(caching=False)
    engine.blocks.grow(MANY)
    requests = [engine.add([token] * 12) for token in (1, 2, 3)]
    assert all(engine.admit(request) for request in requests)
    table = torch.full((3, 6), MANY - 1, dtype=torch.int32)
    for row, request in enumerate(requests):
        table[row, :3] = torch.tensor(engine.ids(request), dtype=torch.int32)
    assert int(table[:, :3].max()) >= FEW
    moves = engine.squeeze()
    lookup = lookup_after(block_moves(moves, num_blocks=MANY, device="cpu"), FEW)
    remap_block_tables(table, torch.full((3,), 6, dtype=torch.int32), lookup)
    for row, request in enumerate(requests):
        assert table[row, :3].tolist() == engine.ids(request)
    assert int(table.max()) < FEW
