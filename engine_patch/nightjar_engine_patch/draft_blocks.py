"""Which KV blocks the draft has read, so that a prompt found in the prefix cache need not be read again.

A block of the prefix cache holds the target's KV of its tokens, and the draft's only if the draft was on when they were
computed, or has caught up on them since. A block keeps its tokens until it is handed out as a new one.
"""

from collections.abc import Iterable, Sequence
from typing import Any


class DraftBlocks:
    """Blocks are marked once for each request, when the draft has read all of its prompt.

    Blocks that generated tokens fill later are not: on GPUs the host does not know which of them are full. Nor are any
    in models with several KV cache groups.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._read: set[int] = set()
        # Of requests whose prompt the draft has not read to its end.
        self._unread: dict[str, list[int]] = {}

    def follow(self, scheduler_output: Any) -> dict[str, int]:
        """What a step's schedule does to blocks (vllm.v1.core.sched.output.SchedulerOutput).

        Returns how many of its first tokens the draft has read, of each request that begins or resumes.
        """
        self._end(scheduler_output.finished_req_ids)
        self._end(scheduler_output.preempted_req_ids or ())
        new, cached = scheduler_output.scheduled_new_reqs, scheduler_output.scheduled_cached_reqs
        found = {one.req_id: self._start(one.req_id, one.block_ids, one.num_computed_tokens) for one in new}
        for request, blocks, computed in zip(
            cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, strict=True
        ):
            if blocks is not None:
                if request in cached.resumed_req_ids:
                    found[request] = self._start(request, blocks, computed)
                else:
                    self._grow(request, blocks)
        return found

    @property
    def awaits_any(self) -> bool:
        return bool(self._unread)

    def awaits(self, request: str) -> bool:
        """Whether the draft has yet to read the request's prompt."""
        return request in self._unread

    def mark(self, request: str, prompt: int) -> None:
        """The draft has read the request's first `prompt` tokens."""
        self._read.update(self._unread.pop(request)[: prompt // self._block_tokens])

    def forget(self) -> None:
        """The draft lost its KV, or blocks changed their ids."""
        self._read.clear()
        self._unread.clear()

    def _start(self, request: str, groups: Sequence[Sequence[int]], computed: int) -> int:
        """computed: tokens that came from the prefix cache; the blocks behind them are new."""
        blocks = _blocks(groups)
        cached = min(computed // self._block_tokens, len(blocks))
        self._read.difference_update(blocks[cached:])
        self._unread[request] = list(blocks)
        read = next((index for index in range(cached) if blocks[index] not in self._read), cached)
        return read * self._block_tokens

    def _grow(self, request: str, groups: Sequence[Sequence[int]]) -> None:
        new = _blocks(groups)
        self._read.difference_update(new)
        if request in self._unread:
            self._unread[request] += new

    def _end(self, requests: Iterable[str]) -> None:
        """What the draft read of their blocks stays read."""
        for request in requests:
            self._unread.pop(request, None)


def _blocks(groups: Sequence[Sequence[int]]) -> Sequence[int]:
    return groups[0] if len(groups) == 1 else ()
