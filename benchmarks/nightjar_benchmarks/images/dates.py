"""The date that an image bears: that of a commit, so that two builds of the same tree bear the same."""

import os
from pathlib import Path

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.programs import run

VARIABLE = "SOURCE_DATE_EPOCH"
"""Read by pip, mmdebstrap and BuildKit, too: https://reproducible-builds.org/specs/source-date-epoch."""


def commit_date(root: Path, *paths: Path) -> str:
    """Seconds since 1970 of the last commit that changed `paths` (none: any), or what SOURCE_DATE_EPOCH says.

    ConfigurationError where neither is known: outside of a clone, or when a path was never committed.
    """
    given = os.environ.get(VARIABLE)
    if given is not None:
        if not given.isdecimal():
            raise ConfigurationError(f"{VARIABLE} requires seconds since 1970, such as 1767225600; found {given!r}")
        return given
    found = _of_commit(root, paths)
    if not found:
        what = ", ".join(map(str, paths)) or str(root)
        raise ConfigurationError(f"the date of a commit of {what} is required, found none; commit it or set {VARIABLE}")
    return found


def _of_commit(root: Path, paths: tuple[Path, ...]) -> str:
    try:
        return run("git", "-C", str(root), "log", "-1", "--format=%ct", "--", *map(str, paths)).strip()
    except RuntimeError:
        return ""
