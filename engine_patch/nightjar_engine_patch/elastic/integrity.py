"""What must hold of vLLM's block pool after every step: the test of growth and shrinkage."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from nightjar_engine_patch.errors import IntegrityError


def check_integrity(manager: Any, withdrawn: Iterable[Any] = ()) -> None:
    """IntegrityError unless every block is in one place and everything keyed by its id agrees.

    manager: vllm.v1.core.kv_cache_manager.KVCacheManager, between two schedules
    withdrawn: what `ElasticBlocks` has taken out of its pool and not given up yet
    """
    pool = manager.block_pool
    _check_numbers(pool)
    free = _walk(pool.free_block_queue)
    _check_references(manager, free, withdrawn)
    _check_hashes(pool)
    _check_keys(manager)


def _require(holds: bool, what: str) -> None:  # noqa: FBT001 - reads as a condition
    if not holds:
        raise IntegrityError(what)


def _check_numbers(pool: Any) -> None:
    ids = [block.block_id for block in pool.blocks]
    _require(ids == list(range(pool.num_gpu_blocks)), f"ids 0 … {pool.num_gpu_blocks - 1} are required, found {ids}")
    _require(all(block.pool is pool for block in pool.blocks), "a block belongs to another pool")
    _require(pool.null_block is pool.blocks[0], "block 0 is not the null block")


def _walk(queue: Any) -> list[Any]:
    """The free blocks in order; the links agree in both directions."""
    found = []
    before, block = queue.fake_free_list_head, queue.fake_free_list_head.next_free_block
    while block is not queue.fake_free_list_tail:
        _require(block.prev_free_block is before, f"block {block.block_id}: its free neighbours disagree")
        found.append(block)
        _require(len(found) <= queue.num_free_blocks, "the free queue is longer than its count")
        before, block = block, block.next_free_block
    _require(block.prev_free_block is before, "the end of the free queue disagrees")
    _require(len(found) == queue.num_free_blocks, f"{queue.num_free_blocks} free blocks counted, found {len(found)}")
    return found


def _check_references(manager: Any, free: list[Any], withdrawn: Iterable[Any]) -> None:
    pool = manager.block_pool
    held = Counter(block.block_id for block in withdrawn)
    for single in manager.coordinator.single_type_managers:
        for blocks in single.req_to_blocks.values():
            for block in blocks:
                _require(pool.blocks[block.block_id] is block, f"a request holds a stranger with id {block.block_id}")
                held[block.block_id] += 1
    free_ids = {block.block_id for block in free}
    for block in pool.blocks:
        if block.is_null:
            continue
        count = held[block.block_id]
        _require(block.ref_cnt == count, f"block {block.block_id}: {block.ref_cnt} references, {count} holders")
        _require(
            (block.block_id in free_ids) == (count == 0),
            f"block {block.block_id}: {count} holders, free {block.block_id in free_ids}",
        )
    _require(all(pool.blocks[block.block_id] is block for block in free), "a stranger is in the free queue")


def _check_hashes(pool: Any) -> None:
    by_block: dict[int, set[Any]] = {}
    for block_hash, entry in pool.cached_block_hash_to_block._cache.items():
        blocks = entry if isinstance(entry, dict) else {entry.block_id: entry}
        _require(bool(blocks), "a hash without blocks")
        for block_id, block in blocks.items():
            _require(block.block_id == block_id, f"block {block.block_id} is cached under the id {block_id}")
            _require(pool.blocks[block_id] is block, f"a stranger with id {block_id} is cached")
            by_block.setdefault(block_id, set()).add(block_hash)
    for block in pool.blocks:
        own = set() if block.block_hash is None else {block.block_hash}
        hashes = own | pool.cached_block_hashes_by_block.get(block.block_id, set())
        found = by_block.get(block.block_id, set())
        _require(hashes == found, f"block {block.block_id} has {len(hashes)} hashes, {len(found)} lead to it")


def _check_keys(manager: Any) -> None:
    pool = manager.block_pool
    known = range(pool.num_gpu_blocks)
    tables = [pool.cached_block_hashes_by_block, pool._reuse_watchers]
    if pool.metrics_collector is not None:
        tables.append(pool.metrics_collector.block_metrics)
    tables += [single.new_block_ids for single in manager.coordinator.single_type_managers]
    outside = sorted({block_id for table in tables for block_id in table if block_id not in known})
    _require(not outside, f"blocks that are gone are still known: {outside}")
