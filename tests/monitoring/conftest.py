"""Prometheus' own tool, and what the components register."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "nightjar"


@pytest.fixture(scope="session")
def promtool():
    """Runs it; gives its exit code and everything it said."""
    path = shutil.which("promtool") or shutil.which("promtool", path=str(ROOT / "out" / "prometheus" / "usr" / "bin"))
    if path is None:
        pytest.skip("promtool is required, found none: `make promtool`, or install Prometheus")

    def run(*arguments, text=None):
        done = subprocess.run(
            [path, *map(str, arguments)], input=text, capture_output=True, text=True, timeout=300, check=False
        )
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.fixture(scope="session")
def alerts():
    return CHART / "files" / "alerts.yaml"
