"""Errors of the engine part.

RefusalError          refuse to start: the message says what is required, what was found, and what to do
PlanError             refuse a plan; the plan in force stays
ElasticError          refuse to expand or squeeze now; nothing is changed
└── PoolBusyError     … because too many blocks are in use: try again when some are free
IntegrityError        a test's finding: the block pool contradicts itself
"""


class RefusalError(RuntimeError):
    """The engine cannot run with Nightjar as configured."""


class PlanError(ValueError):
    """A plan the engine cannot obey; the message names the field."""


class ElasticError(RuntimeError):
    """The memory cannot change hands now; the message says why."""


class PoolBusyError(ElasticError):
    """Too few blocks are free."""


class IntegrityError(AssertionError):
    """The block pool contradicts itself."""
