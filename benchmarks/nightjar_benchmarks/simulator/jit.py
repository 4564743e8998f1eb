"""Compiled functions, typed: numba itself has no annotations."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba  # type: ignore[import-untyped]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def jit(function: _Function) -> _Function:
    """Compiled at the first call and kept on disk.

    The kept code is told apart by its own file only, so functions that call each other live in one file.
    """
    return cast("_Function", numba.njit(cache=True)(function))
