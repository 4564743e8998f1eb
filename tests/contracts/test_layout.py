"""What keeps the tree importable: source roots are no packages, and every component stays in its layer."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE_ROOTS = ("api", "operator", "sidecar", "engine_patch", "kernels", "benchmarks")


def python(code, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_a_source_root_holds_one_package_of_its_own_name_and_is_none_itself(root):
    assert not (ROOT / root / "__init__.py").exists()
    packages = [path.parent.name for path in (ROOT / root).glob("*/__init__.py")]
    assert packages == [f"nightjar_{root}"]


def test_tests_are_no_packages():
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_no_test_folder_is_called_like_the_standard_library():
    folders = {path.name for path in (ROOT / "tests").rglob("*") if path.is_dir()}
    assert folders.isdisjoint(sys.stdlib_module_names)


def test_the_standard_librarys_operator_wins_in_the_repository_root():
    found = python("import collections, operator; print(operator.add(20, 22))")
    assert (found.stdout.strip(), found.stderr, found.returncode) == ("42", "", 0)


def test_operator_sidecar_and_contracts_import_neither_torch_nor_vllm():
    found = python(
        "import importlib, pkgutil, sys\n"
        "for name in ('nightjar_api', 'nightjar_operator', 'nightjar_sidecar'):\n"
        "    package = importlib.import_module(name)\n"
        "    for module in pkgutil.walk_packages(package.__path__, name + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(sorted({'torch', 'vllm', 'triton'} & sys.modules.keys()))"
    )
    assert (found.stdout.strip(), found.returncode) == ("[]", 0), found.stderr


def test_the_engine_plugin_can_be_loaded_without_importing_torch():
    # vLLM loads the entry point in every process of every model server on the machine.
    found = python("import sys, nightjar_engine_patch; print('torch' in sys.modules)")
    assert (found.stdout.strip(), found.returncode) == ("False", 0), found.stderr


def test_the_images_of_operator_and_sidecar_differ_in_what_is_installed_and_started_only():
    """An entry point takes no build argument, so each has a Dockerfile: what is mended in one, is in the other."""
    operator, sidecar = (
        (ROOT / part / "Dockerfile").read_text(encoding="utf-8").splitlines()[1:] for part in ("operator", "sidecar")
    )
    different = [pair for pair in zip(operator, sidecar, strict=True) if pair[0] != pair[1]]
    assert [one.replace("operator", "sidecar") for one, _ in different] == [other for _, other in different]
    assert [one.split()[0] for one, _ in different] == ["&&", "ENTRYPOINT"]
