"""Who has the draft's memory, decided by the scheduler between two steps.

    ON_DEVICE ──expand──► LEAVING ──workers are done──► AWAY ──squeeze──► RETURNING ──workers are done──► ON_DEVICE

The pool of blocks grows after the workers have the memory for it, and shrinks before they give it back: over several
steps, so that none of them is held up by all of the blocks.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from nightjar_api.engine.v1.engine_pb2 import (
    DRAFT_RESIDENCY_AWAY,
    DRAFT_RESIDENCY_ON_DEVICE,
    DraftResidency,
)
from nightjar_engine_patch.elastic.directive import Directive, ExpandDirective, Move, Obeyed, SqueezeDirective
from nightjar_engine_patch.elastic.operations import Kind, Operation, Progress
from nightjar_engine_patch.errors import ElasticError

# Withdrawn in one step: a quarter of a millisecond of a step's preparation.
WITHDRAWN_BLOCKS = 256


class Blocks(Protocol):
    """See `blocks.ElasticBlocks`."""

    @property
    def total(self) -> int: ...

    def grow(self, total: int) -> None: ...

    def withdraw(self, total: int, most: int) -> bool: ...

    def give_back(self) -> None: ...

    def shrink(self, total: int) -> list[Move]: ...


class MemoryState:
    """`submit` and `close` are for any thread, everything else for the scheduler's."""

    def __init__(self, blocks: Blocks, now_ns: Callable[[], int]) -> None:
        self.residency: DraftResidency = DRAFT_RESIDENCY_ON_DEVICE
        self.asked: deque[Operation] = deque()
        self.wake: Callable[[], None] = _nobody_sleeps
        self._blocks = blocks
        self._without_expansion = blocks.total
        self._now_ns = now_ns
        self._open: list[Operation] = []
        # RETURNING, and no worker knows yet.
        self._is_withdrawing = False
        self._started_ns = 0
        self._moved_blocks = 0
        self._closed = False

    @property
    def draft_is_here(self) -> bool:
        """Whether the draft may run in this step."""
        return self.residency == DRAFT_RESIDENCY_ON_DEVICE

    @property
    def has_to_decide(self) -> bool:
        """Whether the next step is one to `decide` in."""
        return bool(self.asked) or self._is_withdrawing

    @property
    def is_busy(self) -> bool:
        """Whether steps are needed even without requests."""
        return bool(self.asked or self._open)

    def submit(self, operation: Operation) -> None:
        self.asked.append(operation)
        if self._closed:
            # The one that closed may have looked before this was there.
            self.close()
        self.wake()

    def close(self) -> None:
        """No step will follow."""
        self._closed = True
        while self.asked:
            self.asked.popleft().refuse(ElasticError("the engine is stopping"))
        while self._open:
            self._open.pop().refuse(ElasticError("the engine is stopping"))

    def decide(self, waiting: int, speculation: str) -> Directive | None:
        """Answer what was asked, and begin a change, or go on with it, if it is possible.

        waiting: requests without a place; speculation: what plans a positive length, empty if nothing does
        """
        directive = None
        while self.asked:
            operation = self.asked.popleft()
            try:
                directive = self._answer(operation, waiting, speculation) or directive
            except ElasticError as error:
                operation.refuse(error)
        if self._is_withdrawing:
            directive = self._withdraw(waiting)
        return directive

    def obeyed(self, answer: Obeyed) -> None:
        """The workers are done."""
        kind = Kind.EXPAND if self.residency == Kind.EXPAND.under_way else Kind.SQUEEZE
        if kind is Kind.EXPAND:
            self._blocks.grow(answer.blocks)
        self.residency = kind.done
        progress = self._progress(moved_bytes=answer.moved_bytes, elapsed_ns=self._now_ns() - self._started_ns)
        while self._open:
            self._open.pop().report(progress)

    def _answer(self, operation: Operation, waiting: int, speculation: str) -> Directive | None:
        kind = operation.kind
        directive: Directive | None = None
        if self.residency == kind.done:
            operation.report(self._progress())
            return None
        if self.residency != kind.under_way:
            if kind is Kind.EXPAND:
                directive = self._expand(speculation)
            else:
                self._squeeze(waiting)
            self.residency = kind.under_way
        self._open.append(operation)
        operation.report(self._progress())
        return directive

    def _expand(self, speculation: str) -> Directive:
        if self.residency != DRAFT_RESIDENCY_ON_DEVICE:
            raise ElasticError("expand: the draft is returning; ask again when it is back")
        if speculation:
            raise ElasticError(f"expand: γ = 0 for every batch is required, found {speculation}")
        self._begin()
        return ExpandDirective()

    def _squeeze(self, waiting: int) -> None:
        if self.residency != DRAFT_RESIDENCY_AWAY:
            raise ElasticError("squeeze: the draft is leaving; ask again when it has left")
        _require_none_waiting(waiting)
        self._begin()
        self._is_withdrawing = True

    def _withdraw(self, waiting: int) -> Directive | None:
        """One step of it; what became impossible meanwhile is refused to all who asked, and as it was."""
        try:
            _require_none_waiting(waiting)
            if not self._blocks.withdraw(self._without_expansion, WITHDRAWN_BLOCKS):
                return None
        except ElasticError as error:
            self._blocks.give_back()
            self._is_withdrawing = False
            self.residency = DRAFT_RESIDENCY_AWAY
            while self._open:
                self._open.pop().refuse(error)
            return None
        moves = self._blocks.shrink(self._without_expansion)
        self._moved_blocks = len(moves)
        self._is_withdrawing = False
        for operation in self._open:
            operation.report(self._progress())
        return SqueezeDirective(tuple(moves))

    def _begin(self) -> None:
        self._started_ns = self._now_ns()
        self._moved_blocks = 0

    def _progress(self, moved_bytes: int = 0, elapsed_ns: int = 0) -> Progress:
        return Progress(self.residency, self._blocks.total, self._moved_blocks, moved_bytes, elapsed_ns)


def _require_none_waiting(waiting: int) -> None:
    if waiting:
        raise ElasticError(f"squeeze: no waiting request is required, found {waiting}")


def _nobody_sleeps() -> None:
    """In an engine core without a process of its own, steps come with its requests."""
