import importlib
import importlib.util
import os
from collections.abc import Callable
from types import ModuleType
from unittest.mock import patch

import pytest


@pytest.fixture(scope="session")
def interpreted() -> Callable[[str], ModuleType]:
    """Loads a private copy of a module whose Triton kernels run in Triton's interpreter.

    The switch is an environment variable read where a kernel is defined. It is set for that import only, after
    Triton itself was imported without it, and the copy is not registered: other tests in this process and their
    children see nothing of it. The price: these kernels may use Triton's builtins, not its library functions.
    """
    importlib.import_module("triton.language")

    def load(name: str) -> ModuleType:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with patch.dict(os.environ, TRITON_INTERPRET="1"):
            spec.loader.exec_module(module)
        return module

    return load
