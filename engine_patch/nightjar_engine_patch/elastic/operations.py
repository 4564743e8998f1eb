"""A request to expand or squeeze on its way between a thread that serves the call and the scheduler."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from threading import Condition

from nightjar_api.engine.v1.engine_pb2 import (
    DRAFT_RESIDENCY_AWAY,
    DRAFT_RESIDENCY_LEAVING,
    DRAFT_RESIDENCY_ON_DEVICE,
    DRAFT_RESIDENCY_RETURNING,
    DraftResidency,
)
from nightjar_engine_patch.errors import ElasticError


class Kind(Enum):
    """What is asked for: the residency on the way, and at the end."""

    EXPAND = (DRAFT_RESIDENCY_LEAVING, DRAFT_RESIDENCY_AWAY)
    SQUEEZE = (DRAFT_RESIDENCY_RETURNING, DRAFT_RESIDENCY_ON_DEVICE)

    @property
    def under_way(self) -> DraftResidency:
        return self.value[0]

    @property
    def done(self) -> DraftResidency:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a change of hands is."""

    residency: DraftResidency
    blocks: int
    moved_blocks: int = 0
    moved_bytes: int = 0
    elapsed_ns: int = 0


class Operation:
    """One call. The scheduler reports, the call's thread waits."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._changed = Condition()
        self._reports: list[Progress] = []
        self._ended = False
        self._error: ElasticError | None = None

    def report(self, progress: Progress) -> None:
        with self._changed:
            self._reports.append(progress)
            self._ended = progress.residency == self.kind.done
            self._changed.notify_all()

    def refuse(self, error: ElasticError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def progress(self) -> Iterator[Progress]:
        """Every report until the end; ElasticError when it is refused."""
        ended = False
        while not ended:
            with self._changed:
                self._changed.wait_for(lambda: self._error is not None or self._reports)
                if self._error is not None:
                    raise self._error
                reports, ended = self._reports, self._ended
                self._reports = []
            yield from reports
