"""Whether a kernel may start before the one that precedes it has ended."""

from functools import cache

import torch

HOPPER = (9, 0)


def launches_dependents(device: torch.device) -> bool:
    """Programmatic dependent launch: NVIDIA's devices from Hopper on; the CPU, where kernels are interpreted, has none.

    PyTorch calls AMD's devices `cuda` too.
    """
    return device.type == "cuda" and torch.version.hip is None and _capability(device) >= HOPPER


@cache
def _capability(device: torch.device) -> tuple[int, int]:
    capability: tuple[int, int] = torch.cuda.get_device_capability(device)
    return capability
