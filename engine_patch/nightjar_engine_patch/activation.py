"""Opt-in: the one attribute of vLLM that is replaced in the front end, and what follows from it.

What:     `vllm.engine.arg_utils.EngineArgs.create_engine_config`
Why:      vLLM offers a scheduler class, a worker class and free-form settings, but nothing that lets a plugin
          check them together before anything is started, or choose the classes that fit the platform
How:      the original runs; when `additional_config` has the key `nightjar`, everything is validated, then
          the classes of scheduler, worker and executor are set. Nothing is set unless every check holds.
Upstream: none asked for yet
Goes away when a plugin can amend VllmConfig.
"""

import logging
from collections.abc import Mapping
from functools import wraps
from typing import Any

from nightjar_engine_patch import guard, settings

_log = logging.getLogger("vllm.nightjar")
_MARK = "_nightjar_original"


def install() -> None:
    """Replace `EngineArgs.create_engine_config`; safe to call again."""
    from vllm.engine.arg_utils import EngineArgs

    original = EngineArgs.create_engine_config
    if hasattr(original, _MARK):
        return

    @wraps(original)
    def create_engine_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        config = original(self, *args, **kwargs)
        if is_opted_in(config.additional_config):
            enable(config)
        return config

    setattr(create_engine_config, _MARK, original)
    EngineArgs.create_engine_config = create_engine_config


def is_opted_in(additional_config: object) -> bool:
    return isinstance(additional_config, Mapping) and settings.KEY in additional_config


def enable(config: Any) -> None:
    """Validate `config` (vllm.config.VllmConfig), then set our classes in it.

    Raises:
        RefusalError: version, fingerprints, settings, a file they name or configuration do not fit; `config` is
            unchanged.

    """
    import vllm

    from nightjar_engine_patch.draft_tiles import given_by
    from nightjar_engine_patch.fingerprints import RECORDED
    from nightjar_engine_patch.refusals import GPU_V2, check_configuration

    guard.check_version(vllm.__version__, guard.accepted_versions())
    guard.check_fingerprints(RECORDED)
    engine_settings = settings.parse(config.additional_config)
    given_by(engine_settings)
    runner = check_configuration(config, engine_settings)
    config.scheduler_config.scheduler_cls = runner.scheduler_cls
    config.parallel_config.worker_cls = runner.worker_cls
    if runner.executor_cls is not None and config.parallel_config.distributed_executor_backend == "mp":
        config.parallel_config.distributed_executor_backend = runner.executor_cls
    if runner is GPU_V2:
        speculative = config.speculative_config
        speculative.num_speculative_tokens_per_batch_size = every_length(speculative.num_speculative_tokens)
    _log.info(
        "Nightjar is on: runner %s, scheduler %s, worker %s, replaced %s",
        runner.name,
        runner.scheduler_cls,
        runner.worker_cls,
        "EngineArgs.create_engine_config",
    )


def every_length(longest: int) -> list[tuple[int, int, int]]:
    """A table of vLLM's for its own choice of lengths by batch size; ours chooses, but the target's CUDA graphs are
    captured for the lengths that the table names (`CudaGraphManager._init_candidates`,
    vllm/v1/worker/gpu/cudagraph_utils.py).
    """
    return [(batch, batch, length) for batch, length in enumerate(range(longest, -1, -1), 1)]
