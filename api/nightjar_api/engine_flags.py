"""Flags of `vllm serve` that a document may not pass on.

Those that follow from other fields, which giving them a second time would contradict; and those that lead to what
Nightjar's plugin refuses to start with.
"""

from collections.abc import Collection
from dataclasses import dataclass

OWNED = {
    "--model": "spec.target.source",
    "--revision": "spec.target.source.hub.revision",
    "--served-model-name": "spec.target.servedName",
    "--dtype": "spec.target.dtype",
    "--max-model-len": "spec.target.maxModelLen",
    "--host": "the runtime",
    "--port": "spec.engine.port",
    "--uds": "spec.engine.port",
    "--tensor-parallel-size": "spec.engine.tensorParallelSize",
    "-tp": "spec.engine.tensorParallelSize",
    "--shutdown-timeout": "spec.drainTimeout",
    "--speculative-config": "spec.draft",
    "-sc": "spec.draft",
    "--additional-config": "spec.engine and spec.fallback",
}


@dataclass(frozen=True)
class Requirement:
    """What the plugin requires of vLLM's configuration (nightjar_engine_patch.refusals)."""

    setting: str
    """Where in vllm.config.VllmConfig."""
    value: object
    flags: tuple[str, ...] = ()
    """Of `vllm serve`, that break it; none where another field or vLLM itself decides."""
    device: str | None = None
    """The only one it is required on; None for all."""
    elastic: str | None = None
    """Why elastic memory requires it; None for what is required without, too."""


REQUIREMENTS = (
    Requirement("scheduler_config.scheduler_cls", None, ("--scheduler-cls",)),
    # What the plugin's schedulers are made for; on CPUs vLLM turns it off whatever it is told.
    Requirement("scheduler_config.async_scheduling", value=True, flags=("--no-async-scheduling",), device="cuda"),
    Requirement("scheduler_config.async_scheduling", value=False, device="cpu"),
    Requirement("parallel_config.pipeline_parallel_size", 1, ("--pipeline-parallel-size", "-pp")),
    Requirement("parallel_config.tensor_parallel_size", 1),
    Requirement("parallel_config.data_parallel_size", 1, ("--data-parallel-size", "-dp")),
    Requirement("kv_transfer_config", None, ("--kv-transfer-config", "--kv-offloading-size")),
    Requirement("lora_config", None, ("--enable-lora",)),
    # Sleep mode takes the allocator below by itself, so it is named first.
    Requirement(
        "model_config.enable_sleep_mode",
        value=False,
        flags=("--enable-sleep-mode",),
        elastic="sleeping drops and moves that memory",
    ),
    Requirement(
        "model_config.enable_cumem_allocator",
        value=False,
        flags=("--enable-cumem-allocator",),
        elastic="its pools keep what the draft's weights leave",
    ),
)


def _flags(device: str | None, *, elastic: bool) -> tuple[str, ...]:
    return tuple(
        flag
        for one in REQUIREMENTS
        if one.device == device and (one.elastic is not None) == elastic
        for flag in one.flags
    )


# The worker's class is the plugin's own, whichever it is.
_PLANNED = ("--worker-cls", *_flags(None, elastic=False))
_PLANNED_ON_GPUS = _flags("cuda", elastic=False)
_ELASTIC = _flags(None, elastic=True)


def contradictions(arguments: list[str]) -> list[str]:
    """Those of `arguments` that another field decides: `--port, which spec.engine.port decides`."""
    return [f"{argument}, which {OWNED[owned]} decides" for argument, owned in _listed(arguments, OWNED)]


def unplanned(arguments: list[str], device: str) -> list[str]:
    """Those of `arguments` that the plugin refuses beside a draft that is planned for."""
    refused = _PLANNED + (_PLANNED_ON_GPUS if device == "cuda" else ())
    return [argument for argument, _ in _listed(arguments, refused)]


def inelastic(arguments: list[str]) -> list[str]:
    """Those of `arguments` that the plugin refuses beside elastic memory."""
    return [argument for argument, _ in _listed(arguments, _ELASTIC)]


# What vLLM reads as a flag: --max_model_len, --max-model-len=64, --speculative-config.model and unambiguous
# beginnings are all the same to it.
def _listed(arguments: list[str], flags: Collection[str]) -> list[tuple[str, str]]:
    """Those of `arguments` that mean one of `flags`, with it."""
    found = []
    for argument in arguments:
        flag = argument.split("=")[0].split(".")[0].replace("_", "-")
        if not flag.startswith("-") or flag.strip("-") == "":
            continue
        found += [(argument, name) for name in flags if name.startswith(flag)][:1]
    return found


def _cel_all(arguments: str, condition: str) -> str:
    return (
        f"{arguments}.filter(argument, argument.startsWith('-'))"
        ".map(argument, argument.split('=')[0].split('.')[0].replace('_', '-'))"
        f".all(flag, flag.replace('-', '') == '' || {condition})"
    )


def _cel_none_of(flags: Collection[str]) -> str:
    return "![" + ", ".join(f"'{name}'" for name in flags) + "].exists(owned, owned.startsWith(flag))"


# The same conditions for the API server; `self` is the engine, then the whole spec.
CEL_CONTRADICTIONS = _cel_all("self.args", _cel_none_of(OWNED))
CEL_UNPLANNED = _cel_all(
    "self.engine.args",
    f"({_cel_none_of(_PLANNED)} && (self.engine.device != 'cuda' || {_cel_none_of(_PLANNED_ON_GPUS)}))",
)
CEL_INELASTIC = _cel_all("self.engine.args", _cel_none_of(_ELASTIC))
