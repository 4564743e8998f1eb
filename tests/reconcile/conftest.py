"""Objects as the API server gives them, and facts, for tests that need no cluster."""

import itertools

import pytest

from nightjar_operator.diagnosis import Facts
from nightjar_operator.pods import Pod
from nightjar_operator.reports import Bucket, Planning


@pytest.fixture
def make_pod():
    numbers = itertools.count(1)

    def make(**changes):
        number = next(numbers)
        values = {
            "name": f"chat-{number}",
            "uid": f"uid-{number}",
            "address": f"10.0.0.{number}",
            "status_port": 8001,
            "ready": True,
            "leaving": False,
            "unschedulable": None,
            "refresh": "",
            "troubles": (),
        }
        return Pod(**values | changes)

    return make


@pytest.fixture
def make_report():
    def make(**changes):
        values = {
            "revision": "new",
            "refused": None,
            "unready": None,
            "gamma": 3,
            "buckets": (Bucket(1, 1, 3), Bucket(2, 8, 0)),
            "acceptance": (0.8, 0.6),
            "switch_seconds": 0.012,
            "residency": "OnDevice",
            "tokens_per_second": 100.0,
        }
        return Planning(**values | changes)

    return make


@pytest.fixture
def make_facts(make_pod, make_report):
    """Two pods that serve, planned for and in step, unless said otherwise."""

    def make(**changes):
        pods = changes.pop("pods", None) or (make_pod(), make_pod())
        status = {"observedGeneration": 4, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
        values = {
            "generation": 7,
            "policy": "nightjar",
            "revision": "new",
            "deployment": {"generation": 4, "replicas": 2, "status": status},
            "pods": pods,
            "reports": {pod.uid: make_report() for pod in pods},
        }
        return Facts(**values | changes)

    return make
