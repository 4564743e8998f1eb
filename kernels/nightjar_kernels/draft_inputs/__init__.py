"""What a draft reads and proposes, on the device: how many drafts were accepted is known there first.

A request is *computed* up to the tokens whose KV the target has; its newest token, sampled but not computed yet,
follows them. A row of the batch names the request's slot in the tables below, or -1: it takes no part.
"""

from dataclasses import dataclass

import torch

from nightjar_kernels.draft_inputs import naive
from nightjar_kernels.draft_inputs.naive import PART_TOKENS


@dataclass(frozen=True)
class Requests:
    """Every request of the engine, by slot."""

    computed: torch.Tensor
    """int32 [slots]"""
    tokens: torch.Tensor
    """int32 [slots, longest]: prompt and output, valid up to the newest token; may lie in the host's memory, mapped"""
    newest: torch.Tensor
    """int64 [slots, 1]: the newest token"""


@dataclass(frozen=True)
class Inputs:
    """What a pass reads; written in place."""

    ids: torch.Tensor
    """int32 [tokens]"""
    positions: torch.Tensor
    """int64 [tokens]"""
    seq_lens: torch.Tensor
    """int32 [rows]: tokens to attend to, up to and including the row's last; 0 for a row that takes no part"""


def newest_inputs(rows: torch.Tensor, requests: Requests, out: Inputs) -> None:
    """Two tokens a row: the last computed one, which the draft may have proposed but not read, and the newest.

    rows: int64 [rows]; every request that takes part has at least one computed token
    """
    if rows.is_cuda:
        from nightjar_kernels.draft_inputs import triton

        triton.newest_inputs(rows, requests, out)
    else:
        naive.newest_inputs(rows, requests, out)


def unread_inputs(
    rows: torch.Tensor,
    unread: torch.Tensor,
    starts: torch.Tensor,
    requests: Requests,
    out: Inputs,
    real: torch.Tensor,
    longest: int,
) -> None:
    """A piece of each row's unread tokens: those before `computed`, of which the draft knows all but the last `unread`.

    Row r reads `starts[r + 1] - starts[r]` tokens from `computed - unread` on, or from 0 where more are said to be
    unread than there are; what then lies behind `computed` is padding. A row that takes no part has no tokens.

    rows: int64 [rows], unread: int32 [rows], starts: int32 [rows + 1], longest: the most tokens a row can have
    real: bool [tokens], whether a token is one and no padding; written in place, like `out`
    """
    if rows.is_cuda:
        from nightjar_kernels.draft_inputs import triton

        triton.unread_inputs(rows, unread, starts, requests, out, real, longest)
    else:
        naive.unread_inputs(rows, unread, starts, requests, out, real)


@dataclass(frozen=True)
class Best:
    """The largest logit of each part of the vocabulary, and where it is; written in place."""

    logits: torch.Tensor
    """float32 [rows, parts]"""
    ids: torch.Tensor
    """int32 [rows, parts]"""


def parts_of(vocab_size: int) -> int:
    return -(-vocab_size // PART_TOKENS)


def best_of_parts(logits: torch.Tensor, out: Best) -> None:
    """The first half of an argmax; `advance` does the second.

    logits: [rows, vocabulary], the tokens of a row adjacent; of equal logits the first counts
    """
    if logits.is_cuda:
        from nightjar_kernels.draft_inputs import triton

        triton.best_of_parts(logits, out)
    else:
        naive.best_of_parts(logits, out)


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
    """Pick each row's draft, keep it, and make it what the next pass reads.

    read: what this pass read; the last of the tokens of each row (two in the `first` pass, then one)
    drafts: int64 [rows, longest length], whose column `columns[row]` is written (column 0 by the `first` pass), if
        there is one: who warms passes up or times them runs more of them than any step does
    columns: int32 [rows], counted up
    following: one token a row; may be `read` itself
    context: positions the draft has; a row at their end stays there
    """
    if drafts.is_cuda:
        from nightjar_kernels.draft_inputs import triton

        triton.advance(best, read, drafts, columns, following, context, first=first)
    else:
        naive.advance(best, read, drafts, columns, following, context, first=first)
