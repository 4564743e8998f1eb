"""What the engine part cannot serve, said before anything is started."""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from nightjar_api.engine_flags import REQUIREMENTS
from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.settings import EngineSettings


@dataclass(frozen=True)
class Runner:
    """One of vLLM's model runners, and our classes for it."""

    name: str
    device: str
    """As a NightjarService names it."""
    stock_worker: str
    worker_cls: str
    scheduler_cls: str
    executor_cls: str | None = None
    """In place of vLLM's "mp"; an executor in the engine core's own process stays as it is."""


CPU_V1 = Runner(
    name="cpu-v1",
    device="cpu",
    stock_worker="vllm.v1.worker.cpu_worker.CPUWorker",
    worker_cls="nightjar_engine_patch.cpu.worker.NightjarCPUWorker",
    scheduler_cls="nightjar_engine_patch.scheduler.NightjarScheduler",
    executor_cls="nightjar_engine_patch.cpu.executor.NightjarExecutor",
)
GPU_V2 = Runner(
    name="gpu-v2",
    device="cuda",
    stock_worker="vllm.v1.worker.gpu_worker.Worker",
    worker_cls="nightjar_engine_patch.gpu.worker.NightjarGPUWorker",
    scheduler_cls="nightjar_engine_patch.async_scheduler.NightjarAsyncScheduler",
)


def check_configuration(config: Any, settings: EngineSettings) -> Runner:
    """The runner that serves `config` (vllm.config.VllmConfig); RefusalError says why none does."""
    _check_draft(config.speculative_config, settings)
    runner = runner_of(config)
    _check_requirements(config, runner, elastic=settings.elastic)
    if runner is GPU_V2:
        _check_graphs(config)
    return runner


def runner_of(config: Any) -> Runner:
    found = config.parallel_config.worker_cls, bool(config.use_v2_model_runner)
    for runner, is_v2 in ((CPU_V1, False), (GPU_V2, True)):
        # A restarted configuration names our class already.
        if found in ((runner.stock_worker, is_v2), (runner.worker_cls, is_v2)):
            return runner
    raise RefusalError(
        f"parallel_config.worker_cls: Nightjar requires {CPU_V1.stock_worker!r} with model runner V1 (vLLM's CPU "
        f"build) or {GPU_V2.stock_worker!r} with model runner V2 (GPUs), found {found[0]!r}, model runner "
        f"V{2 if found[1] else 1}"
    )


def _check_draft(speculative: Any, settings: EngineSettings) -> None:
    if speculative is None:
        raise RefusalError(
            "Nightjar requires a draft model: pass --speculative-config "
            '\'{"method": "draft_model", "model": …, "num_speculative_tokens": …}\', or remove `nightjar` from '
            "--additional-config to serve without speculation"
        )
    requirements = (
        ("method", speculative.method, "draft_model"),
        ("parallel_drafting", speculative.parallel_drafting, False),
        ("draft_sample_method", speculative.draft_sample_method, "greedy"),
        ("use_heterogeneous_vocab", speculative.use_heterogeneous_vocab, False),
        ("num_speculative_tokens_per_batch_size", speculative.num_speculative_tokens_per_batch_size, None),
    )
    for name, found, required in requirements:
        if found != required:
            raise RefusalError(f"speculative_config.{name}: {required!r} is required, found {found!r}")
    most = speculative.num_speculative_tokens
    if settings.fallback_gamma > most:
        raise RefusalError(
            f"additional_config.nightjar.fallback_gamma: at most speculative_config.num_speculative_tokens "
            f"({most}) is required, found {settings.fallback_gamma}"
        )


def _check_requirements(config: Any, runner: Runner, *, elastic: bool) -> None:
    """What a service's document is asked for, too. Layers, device and host are looked at with the KV cache."""
    for required in REQUIREMENTS:
        if required.device not in (None, runner.device) or (required.elastic is not None and not elastic):
            continue
        found = attrgetter(required.setting)(config)
        if found == required.value:
            continue
        if required.elastic is None:
            raise RefusalError(f"{required.setting}: Nightjar requires {required.value!r}, found {found!r}")
        raise RefusalError(
            f"{required.setting}: elastic memory requires {required.value!r}, found {found!r}: {required.elastic}; "
            f"drop {required.flags[0]}, or set additional_config.nightjar.elastic to false"
        )


def _check_graphs(config: Any) -> None:
    """Each length from 0 on stands for a batch size in the table that makes vLLM capture its graphs."""
    least, found = config.speculative_config.num_speculative_tokens + 1, config.scheduler_config.max_num_seqs
    if found < least:
        raise RefusalError(
            f"scheduler_config.max_num_seqs: at least speculative_config.num_speculative_tokens + 1 ({least}) is "
            f"required, found {found}; raise --max-num-seqs"
        )
    batched = config.scheduler_config.max_num_batched_tokens
    if batched < 2 * found:
        raise RefusalError(
            f"scheduler_config.max_num_batched_tokens: at least twice max_num_seqs ({2 * found}) is required, since "
            f"a draft reads two tokens of each request, found {batched}; raise --max-num-batched-tokens"
        )
