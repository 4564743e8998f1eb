import os
import re
import signal
import subprocess
import sys

import pytest

from nightjar_api.settings import SidecarSettings, dump

NIGHTJAR = [sys.executable, "-c", "from nightjar_api.cli import main; main()", "sidecar"]


def command(tmp_path, *more):
    return [*NIGHTJAR, "--engine-socket", str(tmp_path / "e.sock"), "--settings", str(tmp_path / "s.json"), *more]


def test_without_a_settings_file_it_exits_with_the_message(tmp_path):
    done = subprocess.run(command(tmp_path), capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode != 0
    assert "a readable settings file is required" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path, number):
    (tmp_path / "s.json").write_text(dump(SidecarSettings(revision="one")))
    with subprocess.Popen(command(tmp_path, "--port", "0"), stderr=subprocess.PIPE, text=True) as process:
        first = next(line for line in process.stderr if "/readyz" in line)
        assert re.search(r"http://127\.0\.0\.1:\d+ ", first)
        os.kill(process.pid, number)
        _, rest = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "Traceback" not in rest


def test_importing_the_sidecar_imports_neither_torch_nor_vllm():
    code = """
import importlib, pkgutil, sys
import nightjar_sidecar
for module in pkgutil.walk_packages(nightjar_sidecar.__path__, "nightjar_sidecar."):
    importlib.import_module(module.name)
assert "nightjar_sidecar.policies.nightjar" in sys.modules
assert not {"torch", "vllm", "triton"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=3000)


def test_the_commands_module_imports_nothing_heavy():
    code = """
import sys
import nightjar_sidecar.command
assert not {"grpc", "aiohttp", "prometheus_client", "watchfiles"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=3000)
