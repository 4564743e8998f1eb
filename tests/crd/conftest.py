from collections.abc import Iterator
from pathlib import Path

import pytest

from nightjar_benchmarks.operator_figures import api

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def server(control_plane) -> Iterator[api.DryRun]:
    """A real API server that knows NightjarService as it is checked in, and keeps nothing it is told."""
    with api.dry_run(control_plane.kubeconfig, api.definitions(ROOT)) as found:
        yield found
