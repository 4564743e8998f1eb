"""One pool of physical memory for several tenants (target KV, draft KV, draft weights)."""

from nightjar_kernels.physical_pool.errors import MemoryCallError, NotEnoughGranulesError, PoolError
from nightjar_kernels.physical_pool.memory import Memory
from nightjar_kernels.physical_pool.pool import Granules, Range

__all__ = ["Granules", "Memory", "MemoryCallError", "NotEnoughGranulesError", "PoolError", "Range"]
