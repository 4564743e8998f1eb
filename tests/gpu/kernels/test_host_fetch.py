import pytest
import torch

from nightjar_kernels.host_fetch import fetch


@pytest.mark.parametrize("size", [16, 1 << 20, (1 << 28) + 48])
def test_every_byte_arrives(size: int):
    host = torch.randint(0, 256, (size,), dtype=torch.uint8).pin_memory()
    out = torch.zeros(size, dtype=torch.uint8, device="cuda")
    fetch(host, out)
    torch.cuda.synchronize()
    assert torch.equal(out.cpu(), host)


def test_memory_that_is_not_pinned_is_refused():
    with pytest.raises(ValueError, match="pinned memory of the host is required"):
        fetch(torch.zeros(16, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8, device="cuda"))


def test_a_small_copy_does_not_wait_for_a_large_fetch():
    host = torch.zeros(1 << 29, dtype=torch.uint8).pin_memory()
    out = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    small = torch.zeros(4096, dtype=torch.uint8).pin_memory()
    # Loading a kernel for the first time waits for all that run.
    torch.cuda._sleep(1)
    small.cuda()
    fetch(host, out)
    torch.cuda.synchronize()
    beside = torch.cuda.Stream()
    start, copied, fetched = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    start.record()
    with torch.cuda.stream(beside):
        beside.wait_event(start)
        fetch(host, out)
        fetched.record()
    # Well inside of the fetch, which takes some 10 ms.
    torch.cuda._sleep(2_000_000)
    small.cuda(non_blocking=True)
    copied.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(copied) < start.elapsed_time(fetched) / 2
