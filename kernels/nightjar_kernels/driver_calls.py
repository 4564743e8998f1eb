"""Calls to cuda.bindings.driver, whose answers are a code and what was asked for."""

from typing import Any

from nightjar_kernels.physical_pool.errors import MemoryCallError


def call(driver: Any, name: str, *arguments: Any) -> Any:
    """What the driver answers; MemoryCallError when it refuses."""
    code, *results = getattr(driver, name)(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        numbers = ", ".join(str(argument) for argument in arguments if isinstance(argument, int))
        raise MemoryCallError(f"{name}({numbers}) failed with {code.name}")
    return results[0] if results else None
