"""What can go wrong with a pool; after every one of these, pool and ranges are as they were before the call.

PoolError
├── NotEnoughGranulesError    try again after another tenant has given granules back
└── MemoryCallError           the platform refused
"""


class PoolError(RuntimeError):
    """The pool cannot do what was asked."""


class NotEnoughGranulesError(PoolError):
    """Fewer granules are free than were asked for."""


class MemoryCallError(PoolError):
    """A call to the platform's virtual memory failed."""
