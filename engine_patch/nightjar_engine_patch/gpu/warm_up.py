"""Compiling, at start-up, what vLLM's own warm-up leaves for the first greedy request that drafts.

vLLM warms its kernels up with requests that ask for everything a sampler can do (`warmup_kernels`,
vllm/v1/worker/gpu/warmup.py). Their logits are copied to float32 before drafts are verified; greedy requests that ask
for nothing are verified on logits in the model's precision, and Triton compiles kernels anew for another precision:
the three that read logits (`rejection_sample`, vllm/v1/worker/gpu/spec_decode/rejection_sampler_utils.py), in the
first step that verifies greedy drafts. All else that a step with drafts runs is compiled by then: our own passes run in
vLLM's warm-up and are captured, and `ElasticMemory` compiles what it needs.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from vllm.v1.worker.gpu.input_batch import InputBatch


@torch.inference_mode()
def warm_up_greedy_verification(runner: Any) -> None:
    """One verification of the longest length, as the runner's `sample` has it, of no request.

    runner: vllm.v1.worker.gpu.model_runner.GPUModelRunner with its model loaded, before its first request
    """
    batch = drafting_batch(runner.input_buffers, runner.num_speculative_steps)
    config = runner.model_config
    # Through the model, so that the rows of logits lie as far apart as they will.
    hidden = torch.zeros(batch.num_tokens, config.get_hidden_size(), dtype=config.dtype, device=runner.device)
    logits = runner.model.compute_logits(hidden)
    runner.rejection_sampler(logits, batch, runner.speculator.draft_logits)


def drafting_batch(buffers: Any, drafts: int) -> InputBatch:
    """One row in place of a request, with so many drafts to verify.

    buffers: vllm.v1.worker.gpu.input_batch.InputBuffers
    """
    logits = drafts + 1
    batch = InputBatch.make_dummy(1, logits, buffers)
    device = buffers.device
    return replace(
        batch,
        expanded_idx_mapping=torch.zeros(logits, dtype=torch.int64, device=device),
        expanded_local_pos=torch.arange(logits, dtype=torch.int32, device=device),
        num_draft_tokens=drafts,
        num_draft_tokens_per_req=np.array([drafts], dtype=np.int32),
        logits_indices=torch.arange(logits, dtype=torch.int64, device=device),
        cu_num_logits=torch.tensor([0, logits], dtype=torch.int32, device=device),
        cu_num_logits_np=np.array([0, logits], dtype=np.int32),
    )
