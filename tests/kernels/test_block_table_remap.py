from collections.abc import Callable
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nightjar_kernels.block_table_remap import remap_block_tables
from nightjar_kernels.moves import block_moves

Remap = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]

BLOCKS = 50
# What a row holds behind its length: an index that would fault if it were looked up.
STALE = 2**31 - 1


@pytest.fixture(scope="session")
def triton_module(interpreted: Callable[[str], ModuleType]) -> ModuleType:
    module = interpreted("nightjar_kernels.block_table_remap.triton")
    # Rows below are longer and shorter than one piece, and no multiple of it.
    module.ENTRIES = 16
    return module


@pytest.fixture(params=["public", "triton"])
def remap(request: pytest.FixtureRequest, triton_module: ModuleType) -> Remap:
    return remap_block_tables if request.param == "public" else triton_module.remap_block_tables


def tables_of(rows: list[list[int]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
    tables = torch.full((len(rows), width), STALE, dtype=torch.int32)
    for row, ids in enumerate(rows):
        tables[row, : len(ids)] = torch.tensor(ids, dtype=torch.int32)
    return tables, torch.tensor([len(ids) for ids in rows], dtype=torch.int32)


rows_of_ids = st.lists(st.lists(st.integers(0, BLOCKS - 1), max_size=35), min_size=1, max_size=6)


@settings(deadline=None, max_examples=40)
@given(rows=rows_of_ids, extra=st.integers(0, 20), order=st.permutations(range(BLOCKS)))
def test_ids_in_use_follow_the_lookup_and_the_rest_stays(rows, extra, order, triton_module: ModuleType):
    width = max(map(len, rows)) + extra
    if not width:
        return
    lookup = torch.tensor(order, dtype=torch.int32)
    expected, _ = tables_of([[order[block] for block in ids] for ids in rows], width)
    for implementation in (remap_block_tables, triton_module.remap_block_tables):
        tables, lengths = tables_of(rows, width)
        implementation(tables, lengths, lookup)
        assert torch.equal(tables, expected)


def test_moves_rewrite_only_the_blocks_that_moved(remap: Remap):
    tables, lengths = tables_of([[40, 3, 41], [], [42, 40]], 19)
    remap(tables, lengths, block_moves([(40, 1), (42, 2)], num_blocks=BLOCKS, device="cpu").lookup())
    expected, _ = tables_of([[1, 3, 41], [], [2, 1]], 19)
    assert torch.equal(tables, expected)


def test_rows_of_a_wider_table_are_rewritten_in_place(remap: Remap):
    whole, lengths = tables_of([[40] * 20, [41] * 3], 40)
    remap(whole[:, :20], lengths, block_moves([(40, 1)], num_blocks=BLOCKS, device="cpu").lookup())
    expected, _ = tables_of([[1] * 20, [41] * 3], 40)
    assert torch.equal(whole, expected)


def test_an_empty_table_is_left_alone():
    tables = torch.zeros(0, 8, dtype=torch.int32)
    remap_block_tables(tables, torch.zeros(0, dtype=torch.int32), torch.arange(4, dtype=torch.int32))
    assert tables.shape == (0, 8)


INT = torch.int32


@pytest.mark.parametrize(
    ("tables", "lengths", "lookup", "message"),
    [
        ((4,), (4,), (9,), r"tables as \[rows, max_blocks\] .* found shape \(4,\)"),
        ((4, 5), (5,), (9,), r"lengths \[4\], one per row, are required, found shape \(5,\)"),
        ((4, 5), (4,), (9, 1), r"lookup \[num_blocks\] is required, found shape \(9, 1\)"),
    ],
    ids=["tables", "lengths", "lookup"],
)
def test_a_wrong_shape_is_refused(tables, lengths, lookup, message):
    with pytest.raises(ValueError, match=message):
        remap_block_tables(
            torch.zeros(tables, dtype=INT), torch.zeros(lengths, dtype=INT), torch.zeros(lookup, dtype=INT)
        )


@pytest.mark.parametrize("wrong", ["tables", "lengths", "lookup"])
def test_a_wrong_dtype_is_refused(wrong):
    shapes = {"tables": (2, 3), "lengths": (2,), "lookup": (4,)}
    tensors = {name: torch.zeros(shape, dtype=torch.int64 if name == wrong else INT) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=f"{wrong} as int32 on cpu are required, found torch.int64"):
        remap_block_tables(**tensors)
