"""The specification, in plain PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from nightjar_kernels.draft_inputs import Best, Inputs, Requests

# Of the vocabulary: what one program of the kernel looks at.
PART_TOKENS = 4096


def newest_inputs(rows: torch.Tensor, requests: Requests, out: Inputs) -> None:
    for row, slot in enumerate(rows.tolist()):
        both = slice(2 * row, 2 * row + 2)
        if slot < 0:
            out.ids[both], out.positions[both], out.seq_lens[row] = 0, 0, 0
            continue
        computed = int(requests.computed[slot])
        out.ids[both] = torch.stack([requests.tokens[slot, computed - 1], requests.newest[slot, 0].int()])
        out.positions[both] = torch.tensor([computed - 1, computed])
        out.seq_lens[row] = computed + 1


def unread_inputs(
    rows: torch.Tensor,
    unread: torch.Tensor,
    starts: torch.Tensor,
    requests: Requests,
    out: Inputs,
    real: torch.Tensor,
) -> None:
    for row, slot in enumerate(rows.tolist()):
        if slot < 0:
            out.seq_lens[row] = 0
            continue
        computed = int(requests.computed[slot])
        first = max(computed - int(unread[row]), 0)
        piece = slice(int(starts[row]), int(starts[row + 1]))
        positions = torch.arange(first, first + piece.stop - piece.start)
        real[piece] = positions < computed
        out.ids[piece] = torch.where(real[piece], requests.tokens[slot][positions.clamp(max=computed - 1)], 0)
        out.positions[piece] = torch.where(real[piece], positions, 0)
        out.seq_lens[row] = first + len(positions)


def best_of_parts(logits: torch.Tensor, out: Best) -> None:
    for part, piece in enumerate(logits.float().split(PART_TOKENS, dim=1)):
        out.logits[:, part], ids = piece.max(dim=1)
        out.ids[:, part] = ids.int() + part * PART_TOKENS


def advance(
    best: Best,
    read: Inputs,
    drafts: torch.Tensor,
    columns: torch.Tensor,
    following: Inputs,
    context: int,
    *,
    first: bool,
) -> None:
    rows = torch.arange(len(best.ids))
    if first:
        columns[rows] = 0
    last = 2 * rows + 1 if first else rows
    draft = best.ids[rows, best.logits.argmax(dim=1)]
    kept = rows[columns[rows] < drafts.shape[1]]
    drafts[kept, columns[kept].long()] = draft[kept].long()
    columns[rows] += 1
    seq_lens = read.seq_lens[rows]
    following.ids[rows] = draft
    following.positions[rows] = (read.positions[last] + 1).clamp(max=context - 1)
    following.seq_lens[rows] = torch.where(seq_lens > 0, (seq_lens + 1).clamp(max=context), 0)
