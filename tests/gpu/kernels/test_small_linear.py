import pytest
import torch

from nightjar_kernels.small_linear import Norm, linear_add, norm_gate_up, norm_linear

DTYPES = [torch.bfloat16, torch.float16]
# Outputs and inputs of 0.5B, 0.6B and 1B drafts, long rows, and numbers that fit nowhere.
SHAPES = [(1152, 896), (896, 4864), (4096, 1024), (2048, 8192), (1000, 20000), (333, 70)]
TOKENS = [1, 2, 3, 8, 16, 17, 32]


def made(rows, columns, dtype, size=1.0):
    return (torch.randn(rows, columns, device="cuda") * size).to(dtype)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def assert_agrees(function, *given):
    """The specification is computed with on the CPU, in float32."""

    def moved(one):
        return Norm(one.weight.cpu(), one.eps) if isinstance(one, Norm) else one if one is None else one.cpu()

    found, expected = function(*given), function(*map(moved, given))
    ulp = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found.float().cpu(), expected.float(), rtol=2 * ulp, atol=2 * ulp)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("tokens", TOKENS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_the_matrix_before_the_attention(tokens, outputs, inputs, has_bias, dtype):
    bias = made(1, outputs, dtype)[0] if has_bias else None
    norm = Norm(made(1, inputs, dtype)[0] + 1, 1e-5)
    assert_agrees(norm_linear, made(tokens, inputs, dtype, 30), norm, made(outputs, inputs, dtype, inputs**-0.5), bias)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("tokens", TOKENS)
def test_the_gate_and_what_it_gates(tokens, outputs, inputs, dtype):
    norm = Norm(made(1, inputs, dtype)[0] + 1, 1e-6)
    assert_agrees(norm_gate_up, made(tokens, inputs, dtype), norm, made(2 * outputs, inputs, dtype, inputs**-0.5))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("tokens", TOKENS)
def test_the_matrices_that_end_in_the_residual_stream(tokens, outputs, inputs, dtype):
    weight, residual = made(outputs, inputs, dtype, inputs**-0.5), made(tokens, outputs, dtype, 10)
    assert_agrees(linear_add, made(tokens, inputs, dtype), weight, residual)


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
