"""The kernels on a device against their specification on the host."""

import pytest
import torch

from nightjar_kernels.draft_inputs import (
    Best,
    Inputs,
    Requests,
    advance,
    best_of_parts,
    newest_inputs,
    parts_of,
    unread_inputs,
)

SLOTS, LONGEST, CONTEXT = 300, 700, 640


def empty(tokens, rows, device):
    return Inputs(
        torch.full((tokens,), -7, dtype=torch.int32, device=device),
        torch.full((tokens,), -7, dtype=torch.int64, device=device),
        torch.full((rows,), -7, dtype=torch.int32, device=device),
    )


def requests_on(device, mapped):
    torch.manual_seed(0)
    tokens = torch.randint(0, 1000, (SLOTS, LONGEST), dtype=torch.int32)
    computed = torch.randint(1, LONGEST - 1, (SLOTS,), dtype=torch.int32)
    newest = torch.randint(0, 1000, (SLOTS, 1))
    if device == "cuda" and mapped:
        # As vLLM keeps the tokens: in the host's memory, seen by the device.
        from vllm.utils.torch_utils import get_accelerator_view_from_cpu_tensor

        on_device = get_accelerator_view_from_cpu_tensor(tokens.pin_memory())
    else:
        on_device = tokens.to(device)
    return Requests(computed.to(device), on_device, newest.to(device))


def same(first, second):
    for name in ("ids", "positions", "seq_lens"):
        assert torch.equal(getattr(first, name).cpu(), getattr(second, name).cpu()), name


@pytest.mark.parametrize(("rows", "mapped"), [(1, True), (7, False), (256, False), (256, True)])
def test_the_newest_tokens(rows, mapped):
    slots = torch.randperm(SLOTS)[:rows]
    slots[::5] = -1
    found = []
    for device in ("cpu", "cuda"):
        inputs = empty(2 * rows, rows, device)
        newest_inputs(slots.to(device), requests_on(device, mapped), inputs)
        found.append(inputs)
    same(*found)


@pytest.mark.parametrize(("longest", "mapped"), [(1, True), (130, False), (600, False), (600, True)])
def test_unread_tokens(mapped, longest):
    torch.manual_seed(1)
    slots = torch.randperm(SLOTS)[:50]
    # Padding of a batch.
    slots[40:] = -1
    unread = torch.randint(1, longest + 1, (50,), dtype=torch.int32)
    lengths = (unread * torch.rand(50)).int().clamp(min=1)
    lengths[40:] = 0
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), lengths.cumsum(0).int()])
    found, real = [], []
    for device in ("cpu", "cuda"):
        inputs = empty(int(starts[-1]), 50, device)
        requests = requests_on(device, mapped)
        given = slots.to(device), unread.to(device), starts.to(device)
        real.append(torch.zeros(int(starts[-1]), dtype=torch.bool, device=device))
        unread_inputs(*given, requests, inputs, real[-1], int(starts[-1]))
        found.append(inputs)
    same(*found)
    assert torch.equal(real[0], real[1].cpu())


@pytest.mark.parametrize(("rows", "vocab_size"), [(33, 2048), (1, 32000), (33, 152064)])
def test_the_best_of_the_parts(rows, vocab_size):
    torch.manual_seed(3)
    logits = torch.randn(rows, vocab_size).bfloat16()
    found = []
    for device in ("cpu", "cuda"):
        shape = (rows, parts_of(vocab_size))
        best = Best(torch.zeros(shape, device=device), torch.zeros(shape, dtype=torch.int32, device=device))
        best_of_parts(logits.to(device), best)
        found.append(best)
    assert torch.equal(found[0].logits, found[1].logits.cpu())
    assert torch.equal(found[0].ids, found[1].ids.cpu())


@pytest.mark.parametrize("first", [False, True])
def test_advancing(first):
    torch.manual_seed(2)
    rows, parts = 77, 38
    positions = torch.randint(0, CONTEXT, (rows * (1 + first),))
    seq_lens = torch.randint(0, 3, (rows,), dtype=torch.int32) * 100
    logits, ids = torch.randn(rows, parts), torch.randint(0, 1000, (rows, parts), dtype=torch.int32)
    columns = torch.randint(0, 4, (rows,), dtype=torch.int32)
    found = []
    for device in ("cpu", "cuda"):
        read = Inputs(torch.zeros_like(positions).int().to(device), positions.to(device), seq_lens.to(device))
        drafts, counted = torch.full((rows, 5), -7, device=device), columns.clone().to(device)
        following = empty(rows, rows, device)
        best = Best(logits.to(device), ids.to(device))
        advance(best, read, drafts, counted, following, CONTEXT, first=first)
        found.append((drafts.cpu(), counted.cpu(), following))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    same(found[0][2], found[1][2])
