"""What the plugin refuses at its start, a document is refused for before there is a pod that crashes."""

import copy
from types import SimpleNamespace

import pytest

from nightjar_api import service
from nightjar_api.errors import ConfigurationError
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.refusals import CPU_V1, check_configuration
from nightjar_engine_patch.settings import parse

DOCUMENT = {
    "apiVersion": "nightjar.dev/v1alpha1",
    "kind": "NightjarService",
    "metadata": {"name": "story"},
    "spec": {"target": {"source": {"path": "/t"}}, "draft": {"source": {"path": "/d"}}},
}


def configuration(tensor_parallel_size):
    """As much of vLLM's as is looked at."""
    return SimpleNamespace(
        speculative_config=SimpleNamespace(
            method="draft_model",
            parallel_drafting=False,
            draft_sample_method="greedy",
            use_heterogeneous_vocab=False,
            num_speculative_tokens_per_batch_size=None,
            num_speculative_tokens=3,
        ),
        scheduler_config=SimpleNamespace(scheduler_cls=None, async_scheduling=False),
        parallel_config=SimpleNamespace(
            pipeline_parallel_size=1,
            tensor_parallel_size=tensor_parallel_size,
            data_parallel_size=1,
            worker_cls=CPU_V1.stock_worker,
        ),
        kv_transfer_config=None,
        lora_config=None,
        use_v2_model_runner=False,
    )


def document(tensor_parallel_size):
    changed = copy.deepcopy(DOCUMENT)
    changed["spec"]["engine"] = {"tensorParallelSize": tensor_parallel_size}
    return changed


def test_one_gpu_is_taken_by_both():
    settings = parse({"nightjar": {"socket": "e.sock"}})
    assert check_configuration(configuration(1), settings) is CPU_V1
    assert service.from_object(document(1)).spec.engine.tensor_parallel_size == 1


def test_a_model_shared_among_gpus_is_refused_by_both():
    settings = parse({"nightjar": {"socket": "e.sock"}})
    with pytest.raises(RefusalError, match=r"parallel_config\.tensor_parallel_size: Nightjar requires 1, found 2"):
        check_configuration(configuration(2), settings)
    # Once the plugin takes it, this rule of the document goes.
    with pytest.raises(ConfigurationError, match=r"spec\.engine\.tensorParallelSize: 1 beside a draft of method"):
        service.from_object(document(2))
