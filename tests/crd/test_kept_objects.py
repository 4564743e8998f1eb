"""Objects that the API server keeps: changes of them, their scale and their status."""

import uuid

import pytest
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from nightjar_api.status import (
    BucketStatus,
    Condition,
    NightjarServiceStatus,
    PodStatus,
    SpeculationStatus,
)

KIND = {"group": "nightjar.dev", "version": "v1alpha1", "namespace": "default", "plural": "nightjarservices"}
CLAIM = {"size": "10Gi", "storageClassName": "fast", "accessMode": "ReadWriteMany"}


@pytest.fixture
def api(control_plane, server):
    with config.new_client_from_config(str(control_plane.kubeconfig)) as found:
        yield client.CustomObjectsApi(found)


@pytest.fixture
def kept(api):
    """The name of an object with a cache that is made."""
    name = f"story-{uuid.uuid4().hex[:8]}"
    document = {
        "apiVersion": "nightjar.dev/v1alpha1",
        "kind": "NightjarService",
        "metadata": {"name": name},
        "spec": {"target": {"source": {"path": "/t"}}, "cache": CLAIM},
    }
    api.create_namespaced_custom_object(**KIND, body=document)
    yield name
    api.delete_namespaced_custom_object(**KIND, name=name)


def patch(api, name, **spec):
    merge = "application/merge-patch+json"
    return api.patch_namespaced_custom_object(**KIND, name=name, body={"spec": spec}, _content_type=merge)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"size": "9Gi"}, "size"),
        ({"storageClassName": "slow"}, "storageClassName"),
        ({"storageClassName": None}, "storageClassName"),
        ({"accessMode": "ReadWriteOnce"}, "accessMode"),
    ],
)
def test_a_claim_that_cannot_follow_a_change_is_refused(api, kept, change, field):
    with pytest.raises(ApiException, match=rf"spec\.cache\.{field}: .*before is required.*claimName"):
        patch(api, kept, cache=change)


def test_a_claim_may_grow_and_be_replaced_by_another(api, kept):
    assert patch(api, kept, cache={"size": "11Gi"})["spec"]["cache"]["size"] == "11Gi"
    replaced = patch(api, kept, cache={"size": None, "storageClassName": None, "claimName": "mine"})
    assert replaced["spec"]["cache"]["claimName"] == "mine"


def test_it_can_be_scaled_by_those_who_know_nothing_else_about_it(api, kept):
    merge = "application/merge-patch+json"
    api.patch_namespaced_custom_object_scale(**KIND, name=kept, body={"spec": {"replicas": 3}}, _content_type=merge)
    assert api.get_namespaced_custom_object(**KIND, name=kept)["spec"]["replicas"] == 3


def condition(**fields):
    return Condition(
        **{
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "2 of 2 pods serve.",
            "last_transition_time": "2030-01-02T03:04:05Z",
            "observed_generation": 1,
            **fields,
        }
    )


def write_status(api, name, status):
    body = {"status": status.model_dump(mode="json", by_alias=True, exclude_none=True)}
    merge = "application/merge-patch+json"
    return api.patch_namespaced_custom_object_status(**KIND, name=name, body=body, _content_type=merge)["status"]


def test_every_field_of_a_status_is_kept(api, kept):
    status = NightjarServiceStatus(
        observed_generation=1,
        conditions=[condition(), condition(type="Adaptive")],
        replicas=2,
        ready_replicas=2,
        selector="nightjar.dev/service=story",
        url="http://story.default.svc/v1",
        settings_revision="0123456789ab",
        pods=[
            PodStatus(
                name="story-1",
                ready=True,
                settings_revision="0123456789ab",
                settings_error="no",
                gamma=3,
                draft_residency="DRAFT_RESIDENCY_ON_DEVICE",
            )
        ],
        speculation=SpeculationStatus(
            gamma="3",
            buckets=[BucketStatus(min_batch=1, max_batch=4, gamma="1-3")],
            acceptance_percent=[80, 60],
            switch_cost="12ms",
            drafts_on_gpu="1/1",
            tokens_per_second=1000,
        ),
    )
    written = write_status(api, kept, status)
    assert written == status.model_dump(mode="json", by_alias=True)
    assert NightjarServiceStatus.model_validate(written) == status


def test_a_second_condition_of_a_type_is_refused(api, kept):
    with pytest.raises(ApiException, match=r"(?i)status\.conditions\[1\]: Duplicate value"):
        write_status(api, kept, NightjarServiceStatus(conditions=[condition(), condition(status="False")]))
