from types import ModuleType

import pytest
import torch

from nightjar_kernels.draft_inputs import Best
from nightjar_kernels.greedy_head import best_of_head
from nightjar_kernels.small_linear import Norm
from nightjar_kernels.tiles import DEFAULT, HeadTile

EPS = 1e-6
SMALL = HeadTile(tokens=128, inputs=32, stages=4)


@pytest.fixture(scope="session")
def triton_module(interpreted) -> ModuleType:
    return interpreted("nightjar_kernels.greedy_head.triton")


def by_kernel(module, x, norm, head, tile=SMALL):
    best = Best(*(torch.empty(best.shape, dtype=best.dtype) for best in vars(best_of_head(x, norm, head)).values()))
    module.best_of_head(x, norm, head, best, DEFAULT.model_copy(update={"head": tile}))
    return best


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
# One part and a bit of it, and a bit more than a part.
@pytest.mark.parametrize(("rows", "vocab_size"), [(1, 300), (2, 513), (17, 700)])
def test_the_best_of_each_part_is_found(rows, vocab_size, dtype, fresh_memory_is_nan, triton_module):
    generator = torch.Generator().manual_seed(0)
    x = (torch.randn(2 * rows, 70, generator=generator) * 20).to(dtype)[1::2]
    norm = Norm((torch.randn(70, generator=generator) + 1).to(dtype), EPS)
    # Each row's best stands out: no other order of a sum makes another the best.
    head = torch.randn(vocab_size, 70, generator=generator).to(dtype)
    found, expected = by_kernel(triton_module, x, norm, head), best_of_head(x, norm, head)
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(found.logits, expected.logits, rtol=2 * ulp, atol=2 * ulp)
    logits = torch.nn.functional.rms_norm(x.float(), (70,), norm.weight.float(), EPS) @ head.float().T
    picked = logits.gather(1, found.ids.long())
    torch.testing.assert_close(picked, found.logits, rtol=4 * ulp, atol=16 * ulp)
    best_part = found.logits.argmax(dim=1, keepdim=True)
    assert bool((picked.gather(1, best_part)[:, 0] >= logits.max(dim=1).values * (1 - 4 * ulp)).all())


@pytest.mark.parametrize(
    "tile", [SMALL, HeadTile(tokens=512, inputs=16, stages=1), HeadTile(tokens=64, inputs=128, stages=2)]
)
def test_of_equal_logits_the_first_counts(tile, triton_module):
    x, norm = torch.ones(1, 32, dtype=torch.bfloat16), Norm(torch.ones(32, dtype=torch.bfloat16), EPS)
    head = torch.zeros(1024, 32, dtype=torch.bfloat16)
    head[[200, 201, 450, 700, 1023]] = 1
    for best in (by_kernel(triton_module, x, norm, head, tile), best_of_head(x, norm, head)):
        assert best.ids.tolist() == [[200, 700]]


def test_logits_are_rounded_before_they_are_compared(triton_module):
    """vLLM's are: in 16 bits these two are the same."""
    x, norm = torch.ones(1, 32, dtype=torch.bfloat16), Norm(torch.ones(32, dtype=torch.bfloat16), EPS)
    head = torch.ones(2, 32, dtype=torch.bfloat16)
    head[1, 0] += 0.03
    for best in (by_kernel(triton_module, x, norm, head), best_of_head(x, norm, head)):
        assert best.ids.tolist() == [[0]]


@pytest.mark.filterwarnings("ignore:All-NaN slice encountered")  # NumPy's, in the interpreter
def test_a_row_of_nothing_but_nan_has_some_token(triton_module):
    norm = Norm(torch.ones(32, dtype=torch.bfloat16), EPS)
    best = by_kernel(triton_module, torch.full((1, 32), torch.nan).bfloat16(), norm, torch.ones(600, 32).bfloat16())
    assert bool(((best.ids >= 0) & (best.ids < 600)).all())
