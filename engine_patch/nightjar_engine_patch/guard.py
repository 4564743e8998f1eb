"""Refuses any vLLM that this code was not written against.

Of fifteen functions that Nightjar touches, eleven changed between two releases of vLLM, eight of them in the
body only; so both the version and the source of every function we replace or rely on are compared.
"""

import ast
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from nightjar_engine_patch.errors import RefusalError


def accepted_versions(requires: Callable[[str], list[str] | None] = metadata.requires) -> SpecifierSet:
    """The vLLM versions that pyproject.toml accepts: the only place where they are written."""
    try:
        lines = requires("nightjar") or []
    except metadata.PackageNotFoundError:
        lines = []
    for line in lines:
        requirement = Requirement(line)
        if requirement.name == "vllm":
            return requirement.specifier
    raise RefusalError("the metadata of the package `nightjar` names no vLLM version; install it with pip")


def check_version(found: str, accepted: SpecifierSet) -> None:
    """RefusalError unless `found` (vllm.__version__; a local part such as +cpu is ignored) is accepted."""
    if not accepted.contains(found, prereleases=True):
        raise RefusalError(
            f"Nightjar requires vLLM {accepted}, found {found!r}; install that version, or remove "
            f"`nightjar` from --additional-config to serve without Nightjar"
        )


def source_fingerprint(module: str, qualified_name: str) -> str:
    """SHA-256 over the source text of a function or method, decorators included, read without importing the module.

    RefusalError when the module or the function does not exist.
    """
    lines, functions = _functions_of(module)
    node = functions.get(qualified_name)
    if node is None:
        raise RefusalError(f"{module}.{qualified_name} is required by Nightjar, but this vLLM does not have it")
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    return hashlib.sha256("\n".join(lines[first - 1 : node.end_lineno]).encode()).hexdigest()[:16]


def check_fingerprints(recorded: Mapping[tuple[str, str], str]) -> None:
    """RefusalError that lists every recorded function whose source differs."""
    changed = [
        f"{module}.{name} (recorded {expected}, found {found})"
        for (module, name), expected in recorded.items()
        if (found := source_fingerprint(module, name)) != expected
    ]
    if changed:
        raise RefusalError(
            "this vLLM was changed in functions that Nightjar replaces or relies on: " + "; ".join(changed)
        )


@cache
def _functions_of(module: str) -> tuple[list[str], dict[str, ast.FunctionDef]]:
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        # A package above it is gone.
        spec = None
    if spec is None or spec.origin is None:
        raise RefusalError(f"the module {module} is required by Nightjar, but this vLLM does not have it")
    text = Path(spec.origin).read_text(encoding="utf-8")
    functions: dict[str, ast.FunctionDef] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
            functions.update({f"{node.name}.{method.name}": method for method in methods})
    return text.splitlines(), functions
