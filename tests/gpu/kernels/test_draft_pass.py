import pytest
import torch

from nightjar_kernels.draft_attention import Heads, Paged
from nightjar_kernels.draft_pass import Draft, Layer, naive, run
from nightjar_kernels.small_linear import Norm

DTYPE, HIDDEN, SIZE, BLOCK, POSITIONS = torch.bfloat16, 896, 64, 16, 512


def random_draft(device, layers=4, vocab_size=32000):
    generator = torch.Generator().manual_seed(0)

    def made(*shape, mean=0.0, std=0.0):
        return (torch.randn(*shape, generator=generator) * (std or shape[-1] ** -0.5) + mean).to(DTYPE).to(device)

    def norm(size=HIDDEN):
        return Norm(made(size, mean=1, std=0.3), 1e-6)

    angles = torch.arange(POSITIONS)[:, None] * 1e4 ** (-torch.arange(SIZE // 2) / (SIZE // 2))
    rotary = torch.cat([angles.cos(), angles.sin()], dim=-1).to(DTYPE).to(device)
    made_layers = [
        Layer(
            norm(),
            made(1152, HIDDEN),
            made(1152, std=0.3),
            Heads(14, 2, SIZE, rotary, norm(SIZE), norm(SIZE)),
            made(HIDDEN, HIDDEN),
            norm(),
            made(2 * 4864, HIDDEN),
            made(HIDDEN, 4864),
        )
        for _ in range(layers)
    ]
    return Draft(made(vocab_size, HIDDEN, std=1), made_layers, norm(), made(vocab_size, HIDDEN))


@pytest.mark.parametrize(("rows", "parts"), [(1, 4), (2, 1), (5, 4), (16, 1)])
def test_captured_passes_propose_what_the_specification_does(rows, parts):
    """A text is read two tokens a pass by one graph, which finds its inputs where they were when it was captured."""
    draft, length = random_draft("cuda"), 40
    texts = torch.randint(0, 32000, (rows, length), generator=torch.Generator().manual_seed(1)).int()
    blocks = POSITIONS // BLOCK
    tables = torch.randperm(rows * blocks, device="cuda").reshape(rows, blocks).int()
    caches = [torch.zeros(rows * blocks, 2, BLOCK, 2 * SIZE, dtype=DTYPE, device="cuda") for _ in draft.layers]
    ids = torch.zeros(2 * rows, dtype=torch.int32, device="cuda")
    paged = Paged(tables, torch.zeros(rows, dtype=torch.int32, device="cuda"))
    given = {"tokens": 2, "parts": parts}
    run(draft, ids, caches, paged, **given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        best = run(draft, ids, caches, paged, **given)
    on_cpu = random_draft("cpu")
    expected = torch.stack([naive.logits(on_cpu, text) for text in texts])
    for end in range(2, length + 1, 2):
        ids.copy_(texts[:, end - 2 : end].flatten())
        paged.seq_lens.fill_(end)
        graph.replay()
        proposed = best.ids.gather(1, best.logits.argmax(dim=1, keepdim=True))[:, 0].long().cpu()
        logits = expected[:, end - 1]
        missed = logits.max(dim=-1).values - logits.gather(1, proposed[:, None])[:, 0]
        # Sums in 16 bits may prefer one of two tokens that are as good as equal.
        assert float(missed.max()) < 0.05 * float(logits.std())
