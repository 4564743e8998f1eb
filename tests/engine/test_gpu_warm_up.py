"""What is verified at start-up is what the runner verifies of a greedy request with drafts."""

import warnings
from types import SimpleNamespace

import pytest
import torch

with warnings.catch_warnings():
    # Importing vLLM warns of its own use of torch.
    warnings.simplefilter("ignore")
    from vllm.v1.worker.gpu.input_batch import InputBuffers
    from vllm.v1.worker.gpu_worker import Worker

    from nightjar_engine_patch.gpu.warm_up import drafting_batch, warm_up_greedy_verification
    from nightjar_engine_patch.gpu.worker import NightjarGPUWorker

DRAFTS, HIDDEN, WORDS = 3, 8, 20


@pytest.fixture
def verified():
    return []


@pytest.fixture
def runner(verified):
    config = SimpleNamespace(get_hidden_size=lambda: HIDDEN, dtype=torch.bfloat16)
    return SimpleNamespace(
        input_buffers=InputBuffers(4, 16, torch.device("cpu")),
        num_speculative_steps=DRAFTS,
        model_config=config,
        device=torch.device("cpu"),
        model=SimpleNamespace(compute_logits=lambda hidden: hidden.new_zeros(len(hidden), WORDS)),
        rejection_sampler=lambda *given: verified.append(given),
        speculator=SimpleNamespace(draft_logits=None),
    )


def test_one_row_has_all_its_drafts_verified():
    batch = drafting_batch(InputBuffers(4, 16, torch.device("cpu")), DRAFTS)
    assert (batch.num_reqs, batch.num_tokens, batch.num_draft_tokens) == (1, DRAFTS + 1, DRAFTS)
    assert batch.cu_num_logits.tolist() == batch.cu_num_logits_np.tolist() == [0, DRAFTS + 1]
    assert batch.expanded_idx_mapping.tolist() == [0] * (DRAFTS + 1)
    assert batch.expanded_local_pos.tolist() == batch.logits_indices.tolist() == list(range(DRAFTS + 1))


def test_logits_are_the_models_own_in_its_precision(runner, verified):
    warm_up_greedy_verification(runner)
    ((logits, batch, draft_logits),) = verified
    assert (logits.shape, logits.dtype, draft_logits) == ((DRAFTS + 1, WORDS), torch.bfloat16, None)
    assert len(batch.logits_indices) == len(logits)


@pytest.mark.parametrize("wanted", [True, False])
def test_it_is_verified_before_vllms_own_warm_up_where_that_is_wanted(monkeypatch, runner, verified, wanted):
    seen = []
    monkeypatch.setattr(Worker, "compile_or_warm_up_model", lambda _: seen.append(len(verified)))
    worker = NightjarGPUWorker.__new__(NightjarGPUWorker)
    worker.vllm_config = SimpleNamespace(kernel_config=SimpleNamespace(enable_jit_warmup=wanted))
    worker.model_runner = runner
    worker.compile_or_warm_up_model()
    assert seen == [int(wanted)]
