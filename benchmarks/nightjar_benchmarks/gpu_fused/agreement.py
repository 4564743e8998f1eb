"""vLLM's pass and the fused one over the same texts, inside an engine that has nothing else to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from nightjar_kernels.draft_inputs import Best, Inputs
from nightjar_kernels.small_linear import MOST_TOKENS

Rank = Callable[[Inputs], Best]


def greedy_by_both(worker: Any, rows: int, tokens: int, vocabulary: list[int]) -> dict[str, Any]:
    """Token by token, what each pass would say next after random texts of `vocabulary`, [rows][tokens] by path.

    worker: of an engine whose requests have all ended; its KV cache holds other KV of the draft afterwards
    """
    from nightjar_engine_patch.gpu.fused_pass import fused_pass_of

    if rows > MOST_TOKENS:
        raise ValueError(f"at most {MOST_TOKENS} rows are required, found {rows}")
    speculator = worker.model_runner.speculator
    texts = np.random.default_rng(0).choice(vocabulary, (rows, tokens)).astype(np.int32)
    with torch.inference_mode():
        _give_blocks(speculator, rows, tokens)
        loaded = speculator.model, speculator.attn_groups, speculator.block_tables, speculator.device
        fused = fused_pass_of(*loaded, speculator.tiles.tiles)
        found = {
            "vllm": _read(speculator, texts, lambda read: _vllms(speculator, read)),
            "fused": _read(speculator, texts, lambda read: fused.rank(read, 1, tokens)),
        }
        speculator.idx_mapping[:rows] = -1
    return {path: said.cpu().tolist() for path, said in found.items()}


def _give_blocks(speculator: Any, rows: int, tokens: int) -> None:
    """The first slots' requests get blocks of their own; block 0 is vLLM's null block."""
    tables = speculator.block_tables
    blocks = -(-tokens // tables.block_sizes[0])
    found = speculator.kv_cache_config.num_blocks - 1
    if rows * blocks > found:
        raise ValueError(f"{rows * blocks} blocks are required, found {found}")
    ids = torch.arange(1, rows * blocks + 1, dtype=torch.int32, device=speculator.device).view(rows, blocks)
    for table in (tables.block_tables[0].gpu, tables.input_block_tables[0]):
        table[:rows, :blocks] = ids
    speculator.idx_mapping[:rows] = torch.arange(rows, device=speculator.device)


def _read(speculator: Any, texts: Any, rank: Rank) -> torch.Tensor:
    """What follows each token of each text, [rows, tokens]; each pass reads what it wrote itself."""
    buffers, (rows, tokens) = speculator._next, texts.shape  # noqa: SLF001 - what the engine's own passes read
    read = Inputs(buffers.input_ids[:rows], buffers.positions[:rows], buffers.seq_lens[:rows])
    said = torch.empty(rows, tokens, dtype=torch.int64, device=speculator.device)
    on_device = torch.from_numpy(texts).to(speculator.device)
    for position in range(tokens):
        read.ids.copy_(on_device[:, position])
        read.positions.fill_(position)
        read.seq_lens.fill_(position + 1)
        best = rank(read)
        part = best.logits.argmax(dim=1, keepdim=True)
        said[:, position] = best.ids.gather(1, part)[:, 0]
    return said


def _vllms(speculator: Any, read: Inputs) -> Best:
    found: list[Best] = []

    def run(_: int, __: int, metadata: Any, mapping: Any) -> None:
        found.append(speculator._run_and_rank(speculator._next, read, 1, metadata, mapping))  # noqa: SLF001

    rows = len(read.seq_lens)
    speculator._run_eagerly(run, speculator._next, np.arange(rows + 1))  # noqa: SLF001 - vLLM's pass, without a graph
    return found[0]
