from types import ModuleType

import pytest
import torch

from nightjar_kernels.small_linear import MOST_TOKENS, Norm, linear_add, naive, norm_gate_up, norm_linear
from nightjar_kernels.tiles import DEFAULT, RowTile, ShareTile

DTYPES = [torch.bfloat16, torch.float16]
EPS = 1e-5
# Outputs and inputs that are no multiple of any tile, and some that are.
SHAPES = [(24, 70), (48, 256)]


@pytest.fixture(scope="session")
def triton_module(interpreted) -> ModuleType:
    return interpreted("nightjar_kernels.small_linear.triton")


def tiles_of(*linear):
    return DEFAULT.model_copy(update={"linear": linear})


# Every shape above takes several programs, and several pieces of the inputs.
SMALL = tiles_of(
    RowTile(tokens=2, inputs=32, elements=1024, rows=8, programs=2),
    ShareTile(inputs=32, outputs=16, share_inputs=16, warps=2),
    RowTile(tokens=4, elements=1024, rows=8, programs=2),
    ShareTile(outputs=16, share_inputs=16, warps=2),
)
# What a table may say for the same matrices.
OTHERS = [
    RowTile(elements=4096, rows=4, programs=1),
    RowTile(elements=512, rows=1, programs=500),
    ShareTile(outputs=32, share_inputs=16, warps=4),
    ShareTile(outputs=16, share_inputs=64, warps=1),
    ShareTile(outputs=16, share_inputs=32, warps=8),
]


@pytest.fixture
def made(fresh_memory_is_nan):
    """`made(tokens, outputs, dtype)`: random numbers; of the size of a weight when there are as many as inputs."""
    generator = torch.Generator().manual_seed(0)

    def make(rows, columns, dtype, size=1.0):
        return (torch.randn(rows, columns, generator=generator) * size).to(dtype)

    return make


def assert_close(found, expected):
    """Sums in another order, rounded once more or less."""
    assert found.dtype == expected.dtype
    ulp = torch.finfo(expected.dtype).eps
    torch.testing.assert_close(found.float(), expected.float(), rtol=2 * ulp, atol=2 * ulp)


def norm_of(inputs, dtype, made):
    # Far from one: a norm that is forgotten, or applied twice, shows.
    return Norm(made(1, inputs, dtype)[0] + 1, EPS)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize(
    ("tokens", "has_bias"), [(1, False), (1, True), (2, True), (3, False), (16, True), (MOST_TOKENS, False)]
)
def test_the_matrix_before_the_attention(tokens, outputs, inputs, has_bias, dtype, made, triton_module):
    x, weight = made(tokens, inputs, dtype, 30), made(outputs, inputs, dtype, inputs**-0.5)
    bias, norm = made(1, outputs, dtype)[0] if has_bias else None, norm_of(inputs, dtype, made)
    assert_close(triton_module.norm_linear(x, norm, weight, bias, SMALL), norm_linear(x, norm, weight, bias))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("tokens", [1, 2, 17])
def test_the_gate_and_what_it_gates(tokens, outputs, inputs, dtype, made, triton_module):
    x, weight = made(tokens, inputs, dtype), made(2 * outputs, inputs, dtype, inputs**-0.5)
    norm = norm_of(inputs, dtype, made)
    assert_close(triton_module.norm_gate_up(x, norm, weight, SMALL), norm_gate_up(x, norm, weight))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("outputs", "inputs"), SHAPES)
@pytest.mark.parametrize("tokens", [1, 2, 4])
def test_the_matrices_that_end_in_the_residual_stream(tokens, outputs, inputs, dtype, made, triton_module):
    x, weight = made(tokens, inputs, dtype), made(outputs, inputs, dtype, inputs**-0.5)
    residual = made(tokens, outputs, dtype, 10)
    assert_close(triton_module.linear_add(x, weight, residual, SMALL), linear_add(x, weight, residual))


@pytest.mark.parametrize("tile", OTHERS, ids=str)
@pytest.mark.parametrize("tokens", [1, 5])
def test_tiles_are_a_matter_of_time_alone(tokens, tile, made, triton_module):
    dtype, (outputs, inputs) = torch.bfloat16, SHAPES[0]
    tiles = tiles_of(tile, ShareTile(outputs=16, share_inputs=16, warps=1))
    assert tiles.of_matrix(tokens, inputs, gated=True) is tile
    norm, x = norm_of(inputs, dtype, made), made(tokens, inputs, dtype)
    both, residual = made(2 * outputs, inputs, dtype, inputs**-0.5), made(tokens, 2 * outputs, dtype)
    assert_close(triton_module.norm_gate_up(x, norm, both, tiles), norm_gate_up(x, norm, both))
    assert_close(triton_module.linear_add(x, both, residual, tiles), linear_add(x, both, residual))


def test_a_row_too_long_for_one_program_is_read_piece_by_piece(made, triton_module):
    inputs = 1500
    assert isinstance(SMALL.of_matrix(1, inputs), ShareTile)
    x, weight = made(1, inputs, torch.bfloat16), made(3, inputs, torch.bfloat16, inputs**-0.5)
    residual = made(1, 3, torch.bfloat16)
    assert_close(triton_module.linear_add(x, weight, residual, SMALL), linear_add(x, weight, residual))


def test_the_norm_is_pytorchs(made):
    x, norm = made(3, 70, torch.float32, 30), norm_of(70, torch.float32, made)
    expected = torch.nn.functional.rms_norm(x, (70,), norm.weight, EPS)
    torch.testing.assert_close(naive.rms_norm(x, norm), expected)


def test_more_tokens_than_a_program_can_sum_are_refused(made):
    with pytest.raises(ValueError, match="at most 32 tokens are required, found 33"):
        linear_add(made(33, 8, torch.bfloat16), made(4, 8, torch.bfloat16), made(33, 4, torch.bfloat16))


@pytest.mark.parametrize("turned", ["x", "weight", "residual"])
def test_numbers_that_do_not_lie_side_by_side_are_refused(turned, made):
    given = {name: made(8, 8, torch.bfloat16) for name in ("x", "weight", "residual")}
    given[turned] = given[turned].T
    with pytest.raises(ValueError, match="contiguous tokens and weights of one type are required, found strides"):
        linear_add(**given)
