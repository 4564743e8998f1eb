import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle


def widened(number: TensorHandle) -> TensorHandle:
    """Triton's interpreter keeps bfloat16 as 16 bits that NumPy takes for whole numbers."""
    if number.dtype.scalar != tl.bfloat16:
        return number
    return TensorHandle((np.asarray(number.data).astype(np.uint32) << 16).view(np.float32), tl.float32)


def narrowed(number: TensorHandle) -> TensorHandle:
    rounded = torch.from_numpy(np.array(number.data, order="C")).bfloat16()
    return TensorHandle(rounded.view(torch.int16).numpy().view(np.uint16), tl.bfloat16)


@pytest.fixture(scope="session")
def right_bfloat16() -> Iterator[None]:
    """bfloat16 in the interpreter as on a device: rounded and not cut off, multiplied as numbers and not as bits
    (Triton 3.9: `cast_impl` and `create_dot` of `InterpreterBuilder`).
    """
    cast, multiply = InterpreterBuilder.cast_impl, InterpreterBuilder.create_dot

    def cast_impl(self: InterpreterBuilder, number: TensorHandle, to: Any) -> TensorHandle:
        kinds = number.dtype.scalar, to.scalar
        if kinds == (tl.float32, tl.bfloat16):
            return narrowed(number)
        return widened(number) if kinds == (tl.bfloat16, tl.float32) else cast(self, number, to)

    def create_dot(self: InterpreterBuilder, left: TensorHandle, right: TensorHandle, *rest: Any) -> TensorHandle:
        return multiply(self, widened(left), widened(right), *rest)

    with patch.multiple(InterpreterBuilder, cast_impl=cast_impl, create_dot=create_dot):
        yield


@pytest.fixture(scope="session")
def interpreted(right_bfloat16) -> Callable[[str], ModuleType]:
    """Loads a private copy of a module whose Triton kernels run in Triton's interpreter.

    The switch is an environment variable read where a kernel is defined. It is set for that import only, after
    Triton itself was imported without it, and the copy is not registered: other tests in this process and their
    children see nothing of it. The price: these kernels may use Triton's builtins, not its library functions.
    """

    def load(name: str) -> ModuleType:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with patch.dict(os.environ, TRITON_INTERPRET="1"):
            spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def fresh_memory_is_nan() -> Iterator[None]:
    """What a kernel forgets to write is NaN, and so is what it reads before anybody wrote it."""
    before = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(mode=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.utils.deterministic.fill_uninitialized_memory = before[1]
    torch.use_deterministic_algorithms(mode=before[0])
