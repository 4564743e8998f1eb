"""Programs of the machine that benchmarks and tests run."""

import os
import shutil
import subprocess
from collections.abc import Mapping

from nightjar_api.errors import ConfigurationError

_LAST_LINES = 20


def require_programs(packages: Mapping[str, str]) -> None:
    """ConfigurationError unless all of them are there; `packages` names the Debian package of each."""
    missing = [name for name in packages if shutil.which(name) is None]
    if missing:
        raise ConfigurationError(
            f"the programs {', '.join(packages)} are required, found no {', '.join(missing)}; as root: apt-get install"
            f" -y {' '.join(packages[name] for name in missing)}"
        )


def run(*command: str, given: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """What it prints, `given` on its standard input; RuntimeError with the last lines it wrote when it fails.

    `environ` is put on top of this process's own environment.
    """
    variables = {**os.environ, **(environ or {})}
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()[-_LAST_LINES:]
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n" + "\n".join(lines))
    return done.stdout
