"""The specification, in plain PyTorch."""

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name


class Norm(NamedTuple):
    """An RMSNorm."""

    weight: torch.Tensor
    """[inputs]"""
    eps: float


def rms_norm(x: torch.Tensor, norm: Norm) -> torch.Tensor:
    """As vLLM's: rounded before the weight and after it."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + norm.eps)
    return scaled.to(x.dtype) * norm.weight


def norm_linear(x: torch.Tensor, norm: Norm, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    out = rms_norm(x, norm).float() @ weight.float().T
    return (out if bias is None else out + bias.float()).to(x.dtype)


def norm_gate_up(x: torch.Tensor, norm: Norm, weight: torch.Tensor) -> torch.Tensor:
    gate, up = (rms_norm(x, norm).float() @ weight.float().T).chunk(2, dim=-1)
    return (F.silu(gate) * up).to(x.dtype)


def linear_add(x: torch.Tensor, weight: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
    return (x.float() @ weight.float().T + residual.float()).to(x.dtype)
