"""The kernels of a draft's pass, compiled for a device that is not there: what the interpreter does not see."""

import re

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from nightjar_kernels.draft_attention import Heads, Paged
from nightjar_kernels.draft_attention import triton as draft_attention
from nightjar_kernels.draft_inputs import Best
from nightjar_kernels.greedy_head import triton as greedy_head
from nightjar_kernels.small_linear import Norm
from nightjar_kernels.small_linear import triton as small_linear
from nightjar_kernels.tiles import DEFAULT

HOPPER = GPUTarget("cuda", 90, 32)
POINTERS = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int32: "*i32"}


class Compiled:
    """Stands for a kernel: compiles what would be launched, as for a device with programmatic dependent launch."""

    def __init__(self, kernel, found):
        self.kernel, self.found = kernel, found

    def __getitem__(self, grid):
        return self.launch

    def launch(self, *arguments, **named):
        names = self.kernel.arg_names
        given = dict(zip(names, arguments, strict=False)) | {k: v for k, v in named.items() if k in names}
        given["PDL"] = True
        constants = {p.name: given[p.name] for p in self.kernel.params if p.is_constexpr or given[p.name] is None}
        signature = {name: "constexpr" if name in constants else kind(given[name]) for name in names}
        aligned = {
            (names.index(name),): [["tt.divisibility", 16]]
            for name in names
            if name not in constants and is_aligned(given[name])
        }
        source = ASTSource(self.kernel, signature, constants, aligned)
        options = {name: value for name, value in named.items() if name not in names} | {"launch_pdl": True}
        self.found.append(triton.compile(source, target=HOPPER, options=options))


def kind(value):
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def is_aligned(value):
    return isinstance(value, torch.Tensor) or (type(value) is int and value % 16 == 0)


@pytest.fixture
def compiled(monkeypatch):
    """`compiled(module)`: a list of what the module launches from then on."""
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # what it is anyway, but Triton 3.9 warns

    def replace(module):
        found = []
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            monkeypatch.setattr(module, name, Compiled(getattr(module, name), found))
        return found

    return replace


def zeros(*shape):
    return torch.zeros(*shape, dtype=torch.bfloat16)


def loads_from(parameter, ptx):
    """How many loads have an address that comes from a kernel's parameter."""
    addresses, loads = set(), 0
    for line in ptx.splitlines():
        registers = re.findall(r"%rd\d+", line)
        if "ld.global" in line:
            loads += not addresses.isdisjoint(registers)
        elif re.search(rf"ld\.param.*_param_{parameter}\]", line) or not addresses.isdisjoint(registers[1:]):
            addresses.add(registers[0])
    return loads


def test_weights_are_on_their_way_before_a_kernel_waits(compiled):
    found = compiled(small_linear)
    small_linear.norm_gate_up(zeros(1, 896), Norm(zeros(896), 1e-6), zeros(2 * 4864, 896), DEFAULT)
    small_linear.linear_add(zeros(8, 4864), zeros(896, 4864), zeros(8, 896), DEFAULT)
    # Norms in one piece and in several.
    small_linear.norm_gate_up(zeros(8, 896), Norm(zeros(896), 1e-6), zeros(2 * 4864, 896), DEFAULT)
    small_linear.norm_linear(zeros(32, 2048), Norm(zeros(2048), 1e-6), zeros(3072, 2048), None, DEFAULT)
    assert len(found) == 4
    assert all("mma.sync" in kernel.asm["ptx"] for kernel in found[1:])
    for kernel in found:
        before, after = kernel.asm["ptx"].split("griddepcontrol.wait")
        assert "griddepcontrol.launch_dependents" in before
        assert re.search(r"ld\.global\S*\.v4", before), "16 bytes at a time"
        assert "st.global" in after
        assert "st.global" not in before


def test_a_context_is_on_its_way_before_attention_waits_and_nothing_that_the_pass_writes(compiled):
    found = compiled(draft_attention)
    norm = Norm(zeros(64), 1e-6)
    paged = Paged(torch.zeros(2, 50, dtype=torch.int32), torch.zeros(2, dtype=torch.int32))
    heads = Heads(14, 2, 64, zeros(800, 64), norm, norm)
    draft_attention.attend(zeros(4, 18 * 64), heads, zeros(100, 2, 16, 128), paged, tokens=2, parts=3, tiles=DEFAULT)
    head = compiled(greedy_head)
    best = Best(torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.int32))
    greedy_head.best_of_head(zeros(2, 896), Norm(zeros(896), 1e-6), zeros(2048, 896), best, DEFAULT)
    assert len(found + head) == 3
    attention, *others = found + head
    before, after = attention.asm["ptx"].split("griddepcontrol.wait")
    assert re.search(r"ld\.global\S*\.v4", before), "16 bytes at a time"
    assert "st.global" not in before
    assert (loads_from(0, before), loads_from(0, before + after) > 0) == (0, True), "of what the matrix before wrote"
    for kernel in others:
        before, _ = kernel.asm["ptx"].split("griddepcontrol.wait")
        assert "ld.global" not in before
