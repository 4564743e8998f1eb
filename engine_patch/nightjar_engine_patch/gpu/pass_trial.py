"""Passes of the draft, timed on the device while the engine starts and there are no requests."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from nightjar_kernels.draft_inputs import Requests

WARM_UPS, RUNS = 5, 25

Work = Callable[[], object]


@dataclass(frozen=True)
class Trial:
    """Where passes find their requests: the trial makes them up, and leaves none behind."""

    rows: torch.Tensor
    """int64 [rows]: the slot of each row's request, or -1"""
    columns: torch.Tensor
    """int32 [rows]: how many drafts each row has"""
    requests: Requests
    tables: Sequence[torch.Tensor]
    """each int32 [slots or rows, blocks of a request]"""
    blocks: int
    """of KV that there are"""

    def times(self, rows: int, context: int, buffers: Any, passes: Sequence[Work]) -> list[list[float]]:
        """Microseconds of every run of each pass over `rows` requests of `context` tokens, the newest included.

        buffers: what the passes read (vllm.v1.worker.gpu.input_batch.InputBuffers)
        """

        def rewind() -> None:
            # A further pass leaves what the next one reads, and writes its draft behind the last one.
            self.columns.zero_()
            buffers.seq_lens[:rows].fill_(context)
            buffers.positions[:rows].fill_(context - 1)

        with self._batch(rows, context):
            return alternating_us(rewind, passes)

    @contextmanager
    def _batch(self, rows: int, context: int) -> Iterator[None]:
        self.rows[:rows] = torch.arange(rows, device=self.rows.device)
        self.requests.computed[:rows] = context - 1
        for table in self.tables:
            # As far as there are enough, each has blocks of its own: one for all would stay in the device's cache.
            ids = torch.arange(rows * table.shape[1], dtype=torch.int32, device=table.device) % self.blocks
            table[:rows] = ids.view(rows, -1)
        try:
            yield
        finally:
            self.rows[:rows] = -1
            self.requests.computed[:rows] = 0
            for table in self.tables:
                table[:rows] = 0


def alternating_us(prepare: Work, works: Sequence[Work]) -> list[list[float]]:
    """Microseconds on the device of every run of every work, in turns, each behind a `prepare` that is not timed.

    Nobody waits in between: the device is busy with the turn before while a run is launched.
    """
    marks = []
    for _ in range(WARM_UPS + RUNS):
        for work in works:
            prepare()
            start, end = _event(), _event()
            start.record()
            work()
            end.record()
            marks.append((start, end))
    marks[-1][1].synchronize()
    times = [start.elapsed_time(end) * 1e3 for start, end in marks]
    return [times[index :: len(works)][WARM_UPS:] for index in range(len(works))]


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)
