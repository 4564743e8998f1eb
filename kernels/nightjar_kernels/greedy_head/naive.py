"""The specification, in plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from nightjar_kernels.small_linear.naive import Norm, norm_linear

if TYPE_CHECKING:
    from nightjar_kernels.draft_inputs import Best

# Of the vocabulary: what one program of the kernel looks at. Twice as many programs as an H200 has multiprocessors
# for the largest vocabularies.
PART_TOKENS = 512


def best_of_head(x: torch.Tensor, norm: Norm, head: torch.Tensor, out: Best) -> None:
    logits = norm_linear(x, norm, head, None).float()
    for part, piece in enumerate(logits.split(PART_TOKENS, dim=1)):
        out.logits[:, part], ids = piece.max(dim=1)
        out.ids[:, part] = ids.int() + part * PART_TOKENS
