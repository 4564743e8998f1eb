"""The specification: what a rewrite of block tables means, in plain PyTorch."""

import torch


def remap_block_tables(tables: torch.Tensor, lengths: torch.Tensor, lookup: torch.Tensor) -> None:
    columns = torch.arange(tables.shape[1], device=tables.device)
    in_use = columns < lengths[:, None]
    tables[in_use] = lookup[tables[in_use].long()]
