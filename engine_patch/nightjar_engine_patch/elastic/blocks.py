"""Growth and shrinkage of vLLM's block pool, between two schedules.

A block's holders (request tables, the prefix cache) hold the object, not its id. So a block leaves the tail by
exchanging ids with a free block below, every holder stays right, and only what is keyed by id is mended.

Thousands of blocks go at once. Taking them from vLLM's hands takes as long as everything else, and can be done over
several steps before.
"""

from collections.abc import Sequence
from typing import Any

from vllm.v1.core.kv_cache_utils import KVCacheBlock

from nightjar_engine_patch.errors import PoolBusyError

Move = tuple[int, int]


class ElasticBlocks:
    """The blocks of one `vllm.v1.core.kv_cache_manager.KVCacheManager`."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._pool = manager.block_pool
        # What the last shrinkage left, by id: thousands of objects would take a step some milliseconds to make again.
        self._spare: list[Any] = []
        # On their way out of the pool; nobody else holds them, and they hold nothing.
        self._withdrawn: list[Any] = []

    @property
    def withdrawn(self) -> Sequence[Any]:
        """What `withdraw` has taken out so far."""
        return self._withdrawn

    @property
    def total(self) -> int:
        """Blocks there are, vLLM's null block included."""
        return int(self._pool.num_gpu_blocks)

    def grow(self, total: int) -> None:
        """Append free blocks up to `total`."""
        pool = self._pool
        spare, self._spare = self._spare[: total - self.total], []
        for block in spare:
            # Given up as if it were handed out.
            block.ref_cnt = 0
        made = [KVCacheBlock(block_id, pool=pool) for block_id in range(self.total + len(spare), total)]
        fresh = spare + made
        pool.blocks.extend(fresh)
        pool.num_gpu_blocks = total
        # In front: they are taken before anything is evicted from the prefix cache.
        pool.free_block_queue.prepend_n(fresh)

    def withdraw(self, total: int, most: int) -> bool:
        """Take up to `most` blocks out of what vLLM hands out, on the way to keeping `total`; True when all that have
        to go are out.

        They are those that vLLM would hand out next, so of the prefix cache no more is lost, and nothing younger, than
        by a request of that size. PoolBusyError when fewer are free than still have to go; nothing is changed then.
        """
        pool = self._pool
        missing = self.total - total - len(self._withdrawn)
        free = pool.get_num_free_blocks()
        if free < missing:
            raise PoolBusyError(f"{missing} free blocks are required to give them back, found {free}")
        taken = pool.get_new_blocks(min(missing, most))
        _forget(pool, taken)
        self._withdrawn += taken
        return len(taken) == missing

    def give_back(self) -> None:
        """What was withdrawn is to be had again, before anything is evicted."""
        back, self._withdrawn = self._withdrawn, []
        for block in back:
            block.ref_cnt = 0
        self._pool.free_block_queue.prepend_n(back)

    def shrink(self, total: int) -> list[Move]:
        """Keep `total` blocks; what the tail held moves below: (old, new) ids, each once, for the migration.

        What was not withdrawn before is now, with `withdraw`'s error.
        """
        pool = self._pool
        self.withdraw(total, self.total)
        given_up, self._withdrawn = self._withdrawn, []
        ids = {block.block_id for block in given_up}
        staying = [block for block in pool.blocks[total:] if block.block_id not in ids]
        partners = [block for block in given_up if block.block_id < total]
        moves = [(high.block_id, low.block_id) for high, low in zip(staying, partners, strict=True)]
        for high, low in zip(staying, partners, strict=True):
            _exchange(pool, high, low)
        self._spare = pool.blocks[total:]
        del pool.blocks[total:]
        pool.num_gpu_blocks = total
        _mend_new_ids(self._manager, dict(moves))
        return moves


def _forget(pool: Any, blocks: list[Any]) -> None:
    """Handing out began a record of each block's residency in vLLM's metrics; these are not resident."""
    if pool.metrics_collector is not None:
        for block in blocks:
            pool.metrics_collector.block_metrics.pop(block.block_id, None)


def _exchange(pool: Any, high: Any, low: Any) -> None:
    """`low` holds nothing: its hashes went when it was handed out."""
    old, new = high.block_id, low.block_id
    further = pool.cached_block_hashes_by_block.pop(old, set())
    hashes = [*further, *([] if high.block_hash is None else [high.block_hash])]
    cached = pool.cached_block_hash_to_block
    held = [block_hash for block_hash in hashes if cached.pop(block_hash, old) is not None]
    high.block_id, low.block_id = new, old
    pool.blocks[new], pool.blocks[old] = high, low
    for block_hash in held:
        cached.insert(block_hash, high)
    if further:
        pool.cached_block_hashes_by_block[new] = further
    _rekey(pool._reuse_watchers, old, new)
    if pool.metrics_collector is not None:
        _rekey(pool.metrics_collector.block_metrics, old, new)


def _rekey(table: dict[int, Any], old: int, new: int) -> None:
    if old in table:
        table[new] = table.pop(old)


def _mend_new_ids(manager: Any, moved: dict[int, int]) -> None:
    """Ids noted for workers to zero, and not sent yet."""
    for single in manager.coordinator.single_type_managers:
        single.new_block_ids = [moved.get(block_id, block_id) for block_id in single.new_block_ids]
