"""Which pass drafts for a batch, vLLM's or the fused one: both are captured and timed, and the faster graph stays.

The choice is made once, when the engine starts, for each kind of pass and each padded size of a batch.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from triton import TritonError

from nightjar_engine_patch.draft_passes import DraftPasses, TimedPass, timed_pass
from nightjar_engine_patch.gpu.contexts import LONG_CONTEXT, short_context
from nightjar_engine_patch.gpu.draft_graphs import DraftGraphs
from nightjar_engine_patch.gpu.fused_draft import UnsupportedDraftError
from nightjar_engine_patch.gpu.fused_pass import MOST_REQUESTS, FusedPass
from nightjar_engine_patch.gpu.pass_trial import Trial
from nightjar_kernels.draft_inputs import Best, Inputs

# As vLLM calls what it captures: rows, tokens, attention metadata, slots by layer, and what we have no use for.
Run = Callable[..., None]
# What may follow each row of what is read.
Rank = Callable[[Inputs], Best]


@dataclass(frozen=True)
class PassKind:
    """Passes over whole batches with as many new tokens of each request, for contexts of one kind."""

    what: str
    graphs: DraftGraphs
    """vLLM's passes, of which those that lose are replaced"""
    run: Run
    """takes a Rank, as `rank`, in place of vLLM's model"""
    buffers: Any
    """vllm.v1.worker.gpu.input_batch.InputBuffers"""
    tokens: int
    is_short: bool
    most: int
    """the longest context that there can be, in tokens"""

    def context(self, requests: int) -> int:
        """What a pass over so many requests is made for and timed at, in tokens."""
        return min(short_context(requests) if self.is_short else LONG_CONTEXT, self.most)

    def small(self) -> list[Any]:
        """Its sizes that a fused pass is for (vllm.v1.worker.gpu.cudagraph_utils.BatchExecutionDescriptor)."""
        return [size for size in self.graphs.graphs if (size.num_reqs or 0) <= MOST_REQUESTS]


def choose_passes(
    kinds: Sequence[PassKind],
    make: Callable[[], FusedPass],
    capture: Callable[[PassKind, Rank], DraftGraphs],
    trial: Trial | None,
    tiles: str,
) -> DraftPasses:
    """Leave the faster graph of each size of each kind in its place; vLLM's, untimed, without a trial.

    make: UnsupportedDraftError for a draft that only vLLM's pass is right for
    capture: the sizes of a kind that are small, with the fused pass
    tiles: whose sizes that has, to be told
    """
    if not any(kind.small() for kind in kinds):
        return DraftPasses(
            refusal=f"the draft's fused pass: CUDA graphs for batches of at most {MOST_REQUESTS} requests are "
            f"required, found none"
        )
    try:
        fused = make()
        rivals = [capture(kind, _rank(kind, fused)) for kind in kinds]
    except (UnsupportedDraftError, TritonError) as error:
        # The latter for a shape that a kernel does not compile for, or that the device is too small for.
        return DraftPasses(refusal=str(error))
    if trial is None:
        return DraftPasses()
    pairs = zip(kinds, rivals, strict=True)
    timed = tuple(one for kind, rival in pairs for one in _keep_faster(kind, rival, trial))
    return DraftPasses(timed, tiles=tiles)


def _rank(kind: PassKind, fused: FusedPass) -> Rank:
    return lambda read: fused.rank(read, kind.tokens, kind.context(len(read.seq_lens)))


def _keep_faster(kind: PassKind, fused: DraftGraphs, trial: Trial) -> Iterator[TimedPass]:
    for size, graph in sorted(fused.graphs.items(), key=lambda item: item[0].num_tokens):
        rows = size.num_reqs or 0
        context = kind.context(rows)
        vllm_us, fused_us = trial.times(rows, context, kind.buffers, [kind.graphs.graphs[size].replay, graph.replay])
        timed = timed_pass(rows, kind.tokens, context, is_long=not kind.is_short, vllm_us=vllm_us, fused_us=fused_us)
        if timed.is_fused:
            kind.graphs.graphs[size] = graph
        yield timed
