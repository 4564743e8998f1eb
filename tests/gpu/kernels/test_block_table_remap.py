import pytest
import torch

from nightjar_kernels.block_table_remap import naive, remap_block_tables
from nightjar_kernels.moves import block_moves


@pytest.mark.parametrize(
    ("rows", "width", "num_blocks"),
    [(1, 1, 7), (3, 5, 200_000), (256, 256, 4112), (257, 1000, 200_000), (64, 8192, 7), (64, 8192, 4112)],
)
def test_the_kernel_agrees_with_its_specification(rows: int, width: int, num_blocks: int):
    generator = torch.Generator("cuda").manual_seed(rows * width)
    whole = torch.randint(0, num_blocks, (rows, width + 3), dtype=torch.int32, device="cuda", generator=generator)
    lengths = torch.randint(0, width + 1, (rows,), dtype=torch.int32, device="cuda", generator=generator)
    lengths[0] = width
    # Behind its length a row holds ids that would fault if they were looked up.
    behind = torch.arange(width + 3, device="cuda") >= lengths[:, None]
    whole[behind] = 2**31 - 1
    expected = whole.clone()
    lookup = torch.randperm(num_blocks, device="cuda", generator=generator).to(torch.int32)
    remap_block_tables(whole[:, :width], lengths, lookup)
    naive.remap_block_tables(expected[:, :width], lengths, lookup)
    torch.cuda.synchronize()
    assert torch.equal(whole, expected)


def test_a_lookup_made_on_the_device_rewrites_moved_blocks():
    tables = torch.tensor([[40, 3, 41], [42, 40, 9]], dtype=torch.int32, device="cuda")
    lengths = torch.tensor([3, 1], dtype=torch.int32, device="cuda")
    remap_block_tables(tables, lengths, block_moves([(40, 1), (42, 2)], num_blocks=50, device="cuda").lookup())
    assert tables.tolist() == [[1, 3, 41], [2, 40, 9]]
