"""Rewrites block tables after a logical remap: the index half of it."""

import torch

from nightjar_kernels.block_table_remap import naive


def remap_block_tables(tables: torch.Tensor, lengths: torch.Tensor, lookup: torch.Tensor) -> None:
    """Replace every id in use by `lookup[id]`: `tables[r, :lengths[r]]` of each row r, in place.

    `tables` is int32 [rows, max_blocks] with adjacent entries, `lengths` int32 [rows] with values up to
    max_blocks, `lookup` int32 [num_blocks] (`BlockMoves.lookup`). Ids in use must be below num_blocks; what
    lies behind a row's length is left as it is, so stale ids may stay there. On a CUDA device this is one
    launch on the current stream, without a synchronisation.

    ValueError when a tensor has another shape or dtype, or lies on another device.
    """
    _check(tables, lengths, lookup)
    if not tables.numel():
        return
    if not tables.is_cuda:
        naive.remap_block_tables(tables, lengths, lookup)
        return
    # Only a machine with a GPU has a Triton that can launch.
    from nightjar_kernels.block_table_remap import triton

    triton.remap_block_tables(tables, lengths, lookup)


def _check(tables: torch.Tensor, lengths: torch.Tensor, lookup: torch.Tensor) -> None:
    if tables.dim() != 2 or (tables.shape[1] > 1 and tables.stride(1) != 1):
        raise ValueError(
            "tables as [rows, max_blocks] with adjacent entries are required,"
            f" found shape {tuple(tables.shape)} with strides {tables.stride()}"
        )
    if lengths.shape != tables.shape[:1] or not lengths.is_contiguous():
        raise ValueError(
            f"contiguous lengths [{tables.shape[0]}], one per row, are required, found shape {tuple(lengths.shape)}"
        )
    if lookup.dim() != 1 or not lookup.is_contiguous():
        raise ValueError(f"a contiguous lookup [num_blocks] is required, found shape {tuple(lookup.shape)}")
    for name, tensor in (("tables", tables), ("lengths", lengths), ("lookup", lookup)):
        if tensor.dtype != torch.int32 or tensor.device != tables.device:
            raise ValueError(
                f"{name} as int32 on {tables.device} are required, found {tensor.dtype} on {tensor.device}"
            )
