from collections.abc import Callable
from types import ModuleType

import pytest
import torch

from nightjar_kernels.host_fetch import fetch


@pytest.fixture(scope="session")
def triton_module(interpreted: Callable[[str], ModuleType]) -> ModuleType:
    module = interpreted("nightjar_kernels.host_fetch.triton")
    module.PIECE_WORDS = 16
    return module


@pytest.fixture(params=["public", "triton"])
def implementation(request: pytest.FixtureRequest, triton_module: ModuleType) -> Callable[..., None]:
    return fetch if request.param == "public" else triton_module.fetch


# None, less than a piece, all programs once, and some of them more often with a piece that is not full.
@pytest.mark.parametrize("size", [0, 16, 64 * 8, 64 * 19 + 48])
def test_every_byte_arrives_and_nothing_else_is_written(size: int, implementation: Callable[..., None]):
    host = torch.randint(0, 256, (size,), dtype=torch.uint8)
    room = torch.full((size + 16,), 77, dtype=torch.uint8)
    implementation(host, room[:size])
    assert torch.equal(room[:size], host)
    assert bool((room[size:] == 77).all())


@pytest.mark.parametrize(
    ("host", "out", "message"),
    [
        (torch.zeros(24, dtype=torch.uint8), torch.zeros(24, dtype=torch.uint8), r"n a multiple of 16, is required"),
        (torch.zeros(16), torch.zeros(16, dtype=torch.uint8), r"host as adjacent uint8 .* found torch.float32"),
        (torch.zeros(16, dtype=torch.uint8), torch.zeros(64, dtype=torch.uint8)[::4], r"out as .* strides \(4,\)"),
        (torch.zeros(16, dtype=torch.uint8), torch.zeros(32, dtype=torch.uint8), "found 16 and 32"),
    ],
    ids=["size", "dtype", "strides", "sizes"],
)
def test_what_would_be_misread_is_refused(host: torch.Tensor, out: torch.Tensor, message: str):
    with pytest.raises(ValueError, match=message):
        fetch(host, out)
