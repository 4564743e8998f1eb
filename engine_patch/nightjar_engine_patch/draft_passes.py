"""Which of two passes drafts for a batch: vLLM's own or the fused one (`nightjar_kernels.draft_pass`)."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TimedPass:
    """Both passes of one kind over a batch of one size, as measured at start-up."""

    requests: int
    """of a batch, padded to a size that is captured"""
    tokens: int
    """new ones of each request: 2 in the first pass of a step, 1 in those after it"""
    context: int
    """tokens of each request when it was timed"""
    is_long: bool
    """Whether it serves contexts that do not count as short; those that do have graphs of their own."""
    vllm_us: float
    fused_us: float

    @property
    def is_fused(self) -> bool:
        """Of two that are equally fast, vLLM's pass is the one that everybody else runs."""
        return self.fused_us < self.vllm_us

    @property
    def path(self) -> str:
        return "fused" if self.is_fused else "vllm"


@dataclass(frozen=True)
class DraftPasses:
    """What was found at start-up, once for the life of the engine."""

    timed: tuple[TimedPass, ...] = ()
    refusal: str = ""
    """Why vLLM's pass drafts for every batch; empty where times decided."""
    tiles: str = ""
    """Whose tile sizes the fused pass has (`draft_tiles.GpuTiles.told`); empty where there is none."""

    def __str__(self) -> str:
        """One line, for the log."""
        if self.refusal:
            return f"vLLM's own everywhere: {self.refusal}"
        return f"fused / vLLM's in µs: {'; '.join(map(_described, self.timed))}; tile sizes {self.tiles}"


def timed_pass(
    requests: int, tokens: int, context: int, *, is_long: bool, vllm_us: Sequence[float], fused_us: Sequence[float]
) -> TimedPass:
    """By the medians of runs that took turns."""
    medians = (round(statistics.median(times), 1) for times in (vllm_us, fused_us))
    return TimedPass(requests, tokens, context, is_long, *medians)


def _described(one: TimedPass) -> str:
    return f"{one.requests} × {one.tokens} at {one.context}: {one.fused_us:.0f} / {one.vllm_us:.0f}, {one.path}"
