"""The Triton kernel: a few programs, each of which takes every so many-th piece."""
# mypy: allow-untyped-defs, allow-incomplete-defs

import torch
import triton
import triton.language as tl

# Enough bytes under way for the bus, some 100 KB, from few multiprocessors: the step that runs beside needs the rest.
PROGRAMS = 8
PIECE_WORDS = 8192
NUM_WARPS = 8


def fetch(host: torch.Tensor, out: torch.Tensor) -> None:
    words = out.view(torch.int32)
    _fetch_kernel[(PROGRAMS,)](
        host.view(torch.int32), words, words.numel(), PIECE_WORDS=PIECE_WORDS, num_warps=NUM_WARPS
    )


@triton.jit
def _fetch_kernel(
    host_ptr,  # [words] int32, memory of the host that the device can read
    out_ptr,  # [words] int32
    words,
    PIECE_WORDS: tl.constexpr,
):
    stride = tl.num_programs(0) * PIECE_WORDS
    start = tl.program_id(0).to(tl.int64) * PIECE_WORDS
    while start < words:
        at = start + tl.arange(0, PIECE_WORDS)
        inside = at < words
        word = tl.load(host_ptr + at, mask=inside, other=0, eviction_policy="evict_first")
        tl.store(out_ptr + at, word, mask=inside)
        start += stride
