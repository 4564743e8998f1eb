"""A cluster whose node runs pods, with the chart installed in it; what it looked like when a test failed."""

import pytest

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.control_plane import NoControlPlaneError
from nightjar_benchmarks.images.build import build
from nightjar_benchmarks.pairs.make import make_pair
from nightjar_benchmarks.pairs.shapes import SHAPES
from nightjar_benchmarks.real_cluster import node, objects
from nightjar_benchmarks.real_cluster.service import Service
from nightjar_benchmarks.real_cluster.stage import stage
from nightjar_benchmarks.stopping import interrupted_by_signals

FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def images(repository):
    try:
        node.require(repository)
        return build(repository, print)
    except (ConfigurationError, NoControlPlaneError) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    return make_pair(tmp_path_factory.mktemp("models") / "pair", SHAPES["tiny"], [0.9, 0.6], 0)


@pytest.fixture(scope="session")
def release(repository, images, pair):
    with interrupted_by_signals(), stage(repository, images, pair) as release:
        yield release


@pytest.fixture(scope="session")
def cluster(release):
    return release.cluster


@pytest.fixture(scope="session")
def chat(cluster):
    return Service(cluster, "chat")


@pytest.fixture(autouse=True)
def in_order(request):
    """The tests of this folder are one story: what comes after a failure would only repeat it."""
    if request.session.stash.get(FAILED, False):
        pytest.skip("an earlier part of the story failed")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    report = yield
    if report.failed and "release" in item.funcargs:
        item.session.stash[FAILED] = True
        report.sections.append(("the cluster", picture(item.funcargs["release"].cluster)))
    return report


def picture(cluster):
    """Objects, events and the last lines of every container, those that ended too."""

    def said(*arguments):
        try:
            return cluster.kubectl("--namespace", objects.NAMESPACE, *arguments)
        except RuntimeError as error:
            return str(error)

    parts = [
        said("get", "all,njs,events", "--output=wide"),
        said("get", "njs", "--output=yaml"),
        said("describe", "pods"),
    ]
    for pod in said("get", "pods", "--output=name").split():
        parts.append(said("logs", pod, "--all-containers", "--prefix", "--tail=40"))
        parts.append(said("logs", pod, "--all-containers", "--prefix", "--tail=40", "--previous"))
    return "\n".join(parts)
