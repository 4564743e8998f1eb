"""The specification: what a fetch means, in plain PyTorch."""

import torch


def fetch(host: torch.Tensor, out: torch.Tensor) -> None:
    out.copy_(host)
