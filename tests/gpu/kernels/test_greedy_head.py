import pytest
import torch

from nightjar_kernels.greedy_head import best_of_head
from nightjar_kernels.small_linear import Norm


@pytest.mark.parametrize(
    ("rows", "inputs", "vocab_size", "dtype"),
    [
        (1, 896, 152064, torch.bfloat16),
        (1, 896, 513, torch.float16),
        (3, 1024, 32000, torch.bfloat16),
        (16, 2048, 152064, torch.float16),
        (17, 70, 513, torch.bfloat16),
        (17, 70, 32000, torch.float16),
    ],
    ids=str,
)
def test_the_best_of_each_part_is_found(rows, inputs, vocab_size, dtype):
    torch.manual_seed(0)
    x = (torch.randn(2 * rows, inputs, device="cuda") * 20).to(dtype)[1::2]
    norm = Norm((torch.randn(inputs, device="cuda") + 1).to(dtype), 1e-6)
    head = (torch.randn(vocab_size, inputs, device="cuda") * inputs**-0.5).to(dtype)
    found = best_of_head(x, norm, head)
    expected = best_of_head(x.cpu(), Norm(norm.weight.cpu(), norm.eps), head.cpu())
    ulp = torch.finfo(dtype).eps
    torch.testing.assert_close(found.logits.cpu(), expected.logits, rtol=2 * ulp, atol=2 * ulp)
    # Another id has to be as good as equal.
    scale = torch.rsqrt(x.float().square().mean(dim=-1, keepdim=True) + norm.eps)
    logits = ((x.float() * scale).to(dtype) * norm.weight).float() @ head.float().T
    picked = logits.gather(1, found.ids.long())
    torch.testing.assert_close(picked, found.logits, rtol=4 * ulp, atol=4 * ulp)
