import pytest
import torch

from nightjar_kernels.small_linear import Norm, linear_add, norm_gate_up, norm_linear
from nightjar_kernels.tiles import DEFAULT, RowTile, ShareTile, Tiles

# Outputs and inputs of a 0.5B draft, long rows, and numbers that fit nowhere. Every case is a kernel to compile, so
# each shape has some of the numbers of tokens: with tensor cores and without, that fill a tile and that do not.
SHAPES = {
    (1152, 896): [1, 2, 16, 32],
    (896, 4864): [1, 3, 8, 17],
    (1000, 20000): [2, 3, 32],
    (333, 70): [1, 2, 8, 17, 32],
}
CASES = [(tokens, *shape, torch.bfloat16) for shape, numbers in SHAPES.items() for tokens in numbers]
CASES += [(tokens, 1152, 896, torch.float16) for tokens in (2, 3, 17)]
of_every_kind = pytest.mark.parametrize(("tokens", "outputs", "inputs", "dtype"), CASES, ids=str)


def made(rows, columns, dtype, size=1.0):
    return (torch.randn(rows, columns, device="cuda") * size).to(dtype)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def assert_agrees(function, *given):
    """The specification is computed with on the CPU, in float32."""

    def moved(one):
        if isinstance(one, Norm):
            return Norm(one.weight.cpu(), one.eps)
        return one if one is None or isinstance(one, Tiles) else one.cpu()

    found, expected = function(*given), function(*map(moved, given))
    ulp = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found.float().cpu(), expected.float(), rtol=2 * ulp, atol=2 * ulp)


@of_every_kind
def test_the_matrix_before_the_attention(tokens, outputs, inputs, dtype):
    # Every shape and either kernel has some of both.
    bias = made(1, outputs, dtype)[0] if tokens % 2 else None
    norm = Norm(made(1, inputs, dtype)[0] + 1, 1e-5)
    assert_agrees(norm_linear, made(tokens, inputs, dtype, 30), norm, made(outputs, inputs, dtype, inputs**-0.5), bias)


@of_every_kind
def test_the_gate_and_what_it_gates(tokens, outputs, inputs, dtype):
    norm = Norm(made(1, inputs, dtype)[0] + 1, 1e-6)
    assert_agrees(norm_gate_up, made(tokens, inputs, dtype), norm, made(2 * outputs, inputs, dtype, inputs**-0.5))


@of_every_kind
def test_the_matrices_that_end_in_the_residual_stream(tokens, outputs, inputs, dtype):
    weight, residual = made(outputs, inputs, dtype, inputs**-0.5), made(tokens, outputs, dtype, 10)
    assert_agrees(linear_add, made(tokens, inputs, dtype), weight, residual)


@pytest.mark.parametrize(
    "tile",
    [
        RowTile(elements=16384, rows=4, programs=132),
        ShareTile(outputs=32, share_inputs=128, warps=4),
        ShareTile(outputs=16, share_inputs=256, warps=8),
        ShareTile(outputs=16, share_inputs=128, warps=16),
    ],
    ids=str,
)
def test_tiles_are_a_matter_of_time_alone(tile):
    dtype, (outputs, inputs) = torch.bfloat16, (896, 4864)
    tiles = DEFAULT.model_copy(update={"linear": (tile, DEFAULT.linear[-1])})
    norm = Norm(made(1, inputs, dtype)[0] + 1, 1e-6)
    assert_agrees(norm_gate_up, made(3, inputs, dtype), norm, made(2 * outputs, inputs, dtype, inputs**-0.5), tiles)


def test_a_chain_of_kernels_waits_for_what_it_reads():
    """Each may start before the one before it ends; a wrong order shows in some of many runs."""
    dtype, hidden = torch.bfloat16, 896
    norm = Norm(torch.ones(hidden, device="cuda", dtype=dtype), 1e-6)
    up, down = made(2 * 4864, hidden, dtype, hidden**-0.5), made(hidden, 4864, dtype, 4864**-0.5)
    start = made(1, hidden, dtype)

    def chain():
        x = start
        for _ in range(24):
            x = linear_add(norm_gate_up(x, norm, up), down, x)
        return x

    expected = chain()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = chain()
    for _ in range(100):
        graph.replay()
        assert torch.equal(found, expected)
