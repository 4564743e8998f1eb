"""What tests of several components share."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nightjar_benchmarks.control_plane import ControlPlane, NoControlPlaneError, running
from nightjar_benchmarks.stopping import interrupted_by_signals

ROOT = Path(__file__).parents[1]

# On a busy machine any example may take its time, and so may making it up.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


# Shells start what runs in the background with Ctrl-C ignored, and programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
