"""A reader of step reports in a process of its own, as a sidecar is one: in the engine's it would slow the engine down.

For each line on standard input it answers with the reports since the last one, as a line of JSON.
"""

import json
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import grpc

from nightjar_api.engine.v1 import engine_pb2, engine_pb2_grpc

# Of StepReport, in the order of a row.
STEP_FIELDS = (
    "step",
    "plan_version",
    "gamma_drafted",
    "gamma_verified",
    "decode_batch",
    "prefill_tokens",
    "verified_tokens",
    "accepted_tokens",
    "emitted_tokens",
    "catch_up_tokens",
    "stale_tokens",
    "forward_ns",
    "draft_ns",
    "catch_up_ns",
    "step_ns",
    "overhead_ns",
)
# Reports come at least so often while there are any.
_DELAY_MS = 20
_QUIET_SECONDS = 0.15


class Reports:
    """What the engine sends, from the moment it says that it does."""

    def __init__(self, socket: str) -> None:
        channel = grpc.insecure_channel(f"unix:{socket}")
        stub = engine_pb2_grpc.EngineStub(channel)  # type: ignore[no-untyped-call]
        self._stream = stub.WatchSteps(engine_pb2.WatchStepsRequest(max_delay_ms=_DELAY_MS))
        self._stream.initial_metadata()
        self._rows: list[list[int]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(grpc.RpcError):
            for batch in self._stream:
                self._rows.extend([_row(report) for report in batch.reports])

    def take(self) -> list[list[int]]:
        """All rows, those on their way included, and none of them again."""
        last = -1
        while last != (last := len(self._rows)):
            time.sleep(_QUIET_SECONDS)
        taken, self._rows = self._rows, []
        return taken


def _row(report: Any) -> list[int]:
    return [getattr(report, name) for name in STEP_FIELDS]


def main() -> None:
    reports = Reports(sys.argv[1])
    print(json.dumps("ready"), flush=True)
    for _ in sys.stdin:
        print(json.dumps(reports.take()), flush=True)


if __name__ == "__main__":
    main()
