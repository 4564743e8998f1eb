"""Fields without effect are named, so that nobody waits for it."""

import pytest

from nightjar_operator import notices


def test_a_document_of_defaults_has_nothing_without_effect(make_service):
    assert notices.outside_a_cluster(make_service()) == []
    assert notices.without_planning(make_service(draft=False)) == []


def test_what_only_a_cluster_obeys_is_named(make_service):
    service = make_service(replicas=2, engine={"device": "cpu"}, service={"port": 8080})
    assert notices.outside_a_cluster(service) == [
        "spec.replicas, spec.service, spec.engine.device: no effect here, only a cluster obeys"
    ]


@pytest.mark.parametrize(
    ("draft", "why"),
    [(False, "the service has no draft"), ({"method": "ngram"}, "vLLM serves ngram with a fixed length")],
)
def test_what_only_a_planned_length_obeys_is_named_with_the_reason(make_service, draft, why):
    service = make_service(draft=draft, planner={"gammaMax": 1}, engine={"catchUpTokens": 64})
    assert notices.without_planning(service) == [f"spec.planner, spec.engine.catchUpTokens: no effect, {why}"]


def test_a_planned_service_obeys_them_all(make_service):
    assert notices.without_planning(make_service(planner={"gammaMax": 1})) == []
