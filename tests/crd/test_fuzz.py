"""Documents from a seed against the real API server; `operator_figures.definition` tries thousands."""

from random import Random

import pytest

from nightjar_benchmarks.operator_figures import fuzz, specs
from nightjar_benchmarks.operator_figures.api import Answer


class Double:
    """An API server that answers as it is told."""

    def __init__(self, created, applied=None):
        self._created, self._applied = created, applied

    def create(self, document):
        return self._created(document)

    def apply(self, manifest):
        return self._applied or Answer(manifest, "")


RIGHT = {
    "apiVersion": "nightjar.dev/v1alpha1",
    "kind": "NightjarService",
    "metadata": {"name": "a"},
    "spec": {"target": {"source": {"path": "/t"}}},
}
WRONG = {**RIGHT, "spec": {}}


def taken(document):
    return Answer(document, "")


def refused(_document):
    return Answer(None, "spec.target: Required value")


def test_documents_are_refused_with_a_path_or_become_manifests_that_are_accepted(server):
    random = Random(7)
    outcome = fuzz.judge(server, (specs.document(random) for _ in range(60)))
    assert outcome.failures == []
    assert min(outcome.counts["accepted"], outcome.counts["refused"]) > 10


@pytest.mark.parametrize(
    ("api", "document", "why"),
    [
        (Double(taken), WRONG, "accepted by the API server, refused here"),
        (Double(refused), RIGHT, "refused by the API server only"),
        (Double(lambda _: Answer(None, "no")), WRONG, "refused without a path"),
        (Double(taken, Answer(None, "no such field")), RIGHT, "Deployment: no such field"),
    ],
)
def test_what_should_not_happen_counts_as_a_failure(api, document, why):
    outcome = fuzz.judge(api, [document])
    assert outcome.counts == {"failed": 1}
    assert outcome.failures[0]["why"].startswith(why)


def test_equal_seeds_give_equal_documents():
    assert [specs.document(Random(3)) for _ in range(5)] == [specs.document(Random(3)) for _ in range(5)]
