"""Copies from pinned host memory that leave the device's copy engine to others.

What a copy engine is given it does in order. A step's inputs, a few kilobytes, would wait until all of a draft's
weights before them have passed; here a few programs read the host's memory themselves, and the two share the bus.
"""

import torch

from nightjar_kernels.host_fetch import naive


def fetch(host: torch.Tensor, out: torch.Tensor) -> None:
    """Copy `host` to `out`: uint8 [n], n a multiple of 16; `out` on a device, `host` pinned in the host's memory.

    Done on the current stream, and not waited for. On a machine without a device `out` lies in the host's memory too.

    ValueError for anything else.
    """
    _check(host, out)
    if not out.is_cuda:
        naive.fetch(host, out)
        return
    # Only a machine with a GPU has a Triton that can launch.
    from nightjar_kernels.host_fetch import triton

    triton.fetch(host, out)


def _check(host: torch.Tensor, out: torch.Tensor) -> None:
    for name, tensor in (("host", host), ("out", out)):
        if tensor.dtype != torch.uint8 or tensor.dim() != 1 or not tensor.is_contiguous() or tensor.numel() % 16:
            raise ValueError(
                f"{name} as adjacent uint8 [n], n a multiple of 16, is required, found {tensor.dtype} "
                f"{tuple(tensor.shape)} with strides {tensor.stride()}"
            )
    if host.shape != out.shape:
        raise ValueError(f"as many bytes in both are required, found {host.numel()} and {out.numel()}")
    if host.is_cuda or (out.is_cuda and not host.is_pinned()):
        raise ValueError(f"pinned memory of the host is required to copy from, found memory of {host.device}")
