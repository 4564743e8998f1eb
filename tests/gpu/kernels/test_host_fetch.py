import importlib

import pytest
import torch

from nightjar_kernels.host_fetch import PIECE_BYTES, HostFetch
from nightjar_kernels.physical_pool import Granules
from nightjar_kernels.physical_pool.cuda import CudaMemory


@pytest.fixture(scope="module")
def driver():
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    return importlib.import_module("cuda.bindings.driver")


@pytest.mark.parametrize("size", [1, 512, PIECE_BYTES, 5 * PIECE_BYTES + 48])
def test_every_byte_arrives_each_time(size: int, driver):
    host = torch.randint(0, 256, (size,), dtype=torch.uint8).pin_memory()
    out = torch.zeros(size, dtype=torch.uint8, device="cuda")
    fetch = HostFetch(host, out, driver)
    for _ in range(3):
        out.zero_()
        fetch.run()
        assert torch.equal(out.cpu(), host)
    fetch.close()


def test_what_is_filled_may_have_been_unmapped_and_mapped_again_elsewhere(driver):
    size = 5 * PIECE_BYTES
    pool = Granules(CudaMemory(0), granule_bytes=PIECE_BYTES, count=10)
    room, other = pool.reserve("room", 5), pool.reserve("other", 10)
    room.map(0, 5)
    host = torch.randint(0, 256, (size,), dtype=torch.uint8).pin_memory()
    fetch = HostFetch(host, room.tensor(), driver)
    room.unmap(0, 5)
    # As many granules are free as those that it had; others take their place.
    other.map(0, 3)
    room.map(0, 5)
    room.tensor().zero_()
    fetch.run()
    assert torch.equal(room.tensor().cpu(), host)
    torch.cuda.synchronize()
    fetch.close()
    pool.close()


def test_memory_that_is_not_pinned_is_refused(driver):
    with pytest.raises(ValueError, match="pinned memory of the host is required"):
        HostFetch(torch.zeros(16, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8, device="cuda"), driver)


def test_memory_of_a_device_without_a_driver_is_refused():
    with pytest.raises(ValueError, match="found none for cuda:0"):
        HostFetch(torch.zeros(16, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8, device="cuda"), None)


def test_a_small_copy_does_not_wait_for_a_large_fetch(driver):
    host = torch.zeros(1 << 29, dtype=torch.uint8).pin_memory()
    out = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    small = torch.zeros(4096, dtype=torch.uint8).pin_memory()
    # Loading a kernel for the first time waits for all that run.
    torch.cuda._sleep(1)
    small.cuda()
    fetch = HostFetch(host, out, driver)
    fetch.run()
    torch.cuda.synchronize()
    beside = torch.cuda.Stream()
    start, copied, fetched = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    start.record()
    with torch.cuda.stream(beside):
        beside.wait_event(start)
        fetch.run()
        fetched.record()
    # Well inside of the fetch, which takes some 10 ms.
    torch.cuda._sleep(2_000_000)
    small.cuda(non_blocking=True)
    copied.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(copied) < start.elapsed_time(fetched) / 2
