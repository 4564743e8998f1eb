import pytest
import torch

from nightjar_kernels.host_fetch import HostFetch


@pytest.mark.parametrize("size", [0, 1, 5000])
def test_every_byte_arrives_each_time_and_nothing_else_is_written(size: int):
    host = torch.randint(0, 256, (size,), dtype=torch.uint8)
    room = torch.full((size + 16,), 77, dtype=torch.uint8)
    fetch = HostFetch(host, room[:size], None)
    for _ in range(2):
        room[:size] = 1
        fetch.run()
        assert torch.equal(room[:size], host)
        assert bool((room[size:] == 77).all())
    fetch.close()


@pytest.mark.parametrize(
    ("host", "out", "message"),
    [
        (torch.zeros(16), torch.zeros(16, dtype=torch.uint8), r"host as adjacent uint8 .* found torch.float32"),
        (torch.zeros(4, 4, dtype=torch.uint8), torch.zeros(16, dtype=torch.uint8), r"host .* found .* \(4, 4\)"),
        (torch.zeros(16, dtype=torch.uint8), torch.zeros(64, dtype=torch.uint8)[::4], r"out .* strides \(4,\)"),
        (torch.zeros(16, dtype=torch.uint8), torch.zeros(32, dtype=torch.uint8), "found 16 and 32"),
    ],
    ids=["dtype", "dimensions", "strides", "sizes"],
)
def test_what_would_be_misread_is_refused(host: torch.Tensor, out: torch.Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        HostFetch(host, out, None)
