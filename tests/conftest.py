"""What tests of several components share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from nightjar_benchmarks.control_plane import ControlPlane, NoControlPlaneError, running
from nightjar_benchmarks.stopping import interrupted_by_signals

ROOT = Path(__file__).parents[1]

# A deadline is a timing threshold: on a busy machine any example may take its time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(scope="session")
def repository() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One real Kubernetes API for all tests of a session: tests keep to namespaces of their own."""
    try:
        # Its processes have sessions of their own and would outlive tests that somebody stops.
        with interrupted_by_signals(), running(ROOT) as plane:
            yield plane
    except NoControlPlaneError as error:
        pytest.skip(str(error))
