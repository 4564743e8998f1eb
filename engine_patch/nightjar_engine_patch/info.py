"""What this engine is, for GetInfo."""

from importlib.metadata import version
from typing import Any

from nightjar_api.engine.v1 import engine_pb2
from nightjar_engine_patch.refusals import CPU_V1, runner_of
from nightjar_engine_patch.settings import EngineSettings
from nightjar_engine_patch.step_measure import StepMeasure

# DraftModelProposer loads the draft under this prefix (vllm/v1/spec_decode/draft_model.py).
_DRAFT_PREFIX = "draft_model."


def engine_info(vllm_config: Any, kv_cache_config: Any, settings: EngineSettings) -> engine_pb2.EngineInfo:
    """`engine_id`, `draft_residency` and `elastic_unsupported_reason` are the control plane's to fill."""
    import vllm

    speculative = vllm_config.speculative_config
    runner = runner_of(vllm_config)
    return engine_pb2.EngineInfo(
        nightjar_version=version("nightjar"),
        vllm_version=vllm.__version__,
        runner=runner.name,
        target_model=vllm_config.model_config.model,
        draft_model=speculative.draft_model_config.model,
        draft_weights_stay=runner is CPU_V1,
        gamma_max=speculative.num_speculative_tokens,
        fallback_gamma=settings.fallback_gamma,
        max_batch=vllm_config.scheduler_config.max_num_seqs,
        tensor_parallel_size=vllm_config.parallel_config.tensor_parallel_size,
        block_tokens=vllm_config.cache_config.block_size,
        block_bytes=_block_bytes(kv_cache_config),
        draft_block_bytes=_draft_block_bytes(kv_cache_config),
        blocks=kv_cache_config.num_blocks,
    )


def tell_of_worker(info: engine_pb2.EngineInfo, measure: StepMeasure) -> None:
    """What only workers know, from the first step's measure."""
    info.draft_weight_bytes = measure.draft_weight_bytes
    if (graphs := measure.graphs) is not None:
        told = engine_pb2.DraftGraphs(captured=graphs.count, seconds=graphs.seconds, bytes=graphs.nbytes)
        info.draft_graphs.CopyFrom(told)
    if measure.passes is None:
        info.fused_draft_refusal = "the draft's fused pass: a GPU is required, found none"
        return
    info.fused_draft_refusal = measure.passes.refusal
    info.draft_tiles = measure.passes.tiles
    info.draft_passes.extend(
        engine_pb2.DraftPass(
            requests=one.requests,
            tokens=one.tokens,
            context=one.context,
            long_contexts=one.is_long,
            path=one.path,
            vllm_us=one.vllm_us,
            fused_us=one.fused_us,
        )
        for one in measure.passes.timed
    )


def _block_bytes(kv_cache_config: Any) -> int:
    """Bytes of one block over all layers (vllm/v1/kv_cache_interface.py).

    Every KVCacheTensor tells the size of the allocation that all of them share. A group's spec would not do: it is
    that of its first layer, and the draft's layers may be smaller.
    """
    allocations: set[int] = {tensor.size for tensor in kv_cache_config.kv_cache_tensors}
    return max(allocations) // int(kv_cache_config.num_blocks)


def _draft_block_bytes(kv_cache_config: Any) -> int:
    """Of those, the bytes of the draft's layers; of a layer's two strides one is its page, the other some pages."""
    return sum(
        min(tensor.layer_stride, tensor.block_stride)
        for tensor in kv_cache_config.kv_cache_tensors
        for layer in tensor.layers
        if layer.startswith(_DRAFT_PREFIX)
    )
