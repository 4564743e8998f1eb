"""The script that continuous integration runs, with doubles in place of `make` and of what may be missing."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "run"
MAKE = """#!/bin/sh
echo "$1" >> "$MADE"
[ "$1" = promtool ] || exit 0
echo "apt-get download prometheus"
{promtool}
"""
MISSING = """echo "E: Unable to locate package prometheus" >&2
echo "make: *** [Makefile:69: out/prometheus/usr/bin/promtool] Error 100" >&2
exit 2"""


@pytest.fixture
def run(tmp_path):
    """Gives what was said, and what was made; `installed` are programs that are there already."""

    def go(promtool, *installed):
        programs = tmp_path / "bin"
        programs.mkdir()
        # Nothing else is found, so that what this machine has makes no difference.
        for name in ("bash", "dirname", "grep", "tail"):
            (programs / name).symlink_to(shutil.which(name))
        for name, text in {"make": MAKE.format(promtool=promtool), **dict.fromkeys(installed, "#!/bin/sh\n")}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        made = tmp_path / "made"
        environment = {"PATH": str(programs), "MADE": str(made)}
        done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr, made.read_text().split()

    return go


def test_without_promtool_one_line_says_what_will_be_skipped_and_why_and_all_else_runs(run):
    said, made = run(MISSING, "chromedriver")
    assert said == "no promtool: the tests of the alerts will be skipped: E: Unable to locate package prometheus\n"
    assert made == ["lint", "promtool", "test"]


def test_with_promtool_nothing_is_said(run):
    assert run("exit 0", "chromedriver") == ("", ["lint", "promtool", "test"])


def test_promtool_that_is_installed_is_not_fetched(run):
    assert run(MISSING, "chromedriver", "promtool") == ("", ["lint", "test"])
