"""What holds of the manifests of every document, however it is put together."""

import copy
from random import Random

from hypothesis import assume, given
from hypothesis import strategies as st

from nightjar_api import service as documents
from nightjar_api.durations import seconds
from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.operator_figures import specs
from nightjar_operator.manifests import Images, Owner, manifests

OWNER = Owner("default", "story", "u")


def built(document):
    """Its manifests; documents that are refused prove nothing here."""
    try:
        return manifests(documents.from_object(document), OWNER, Images("e", "s"))
    except ConfigurationError:
        assume(False)  # noqa: FBT003 - hypothesis' signature


def template(found):
    return next(item for item in found if item["kind"] == "Deployment")["spec"]["template"]["spec"]


random_documents = st.integers(0, 2**32).map(lambda seed: specs.document(Random(seed)))


@given(random_documents)
def test_every_mount_has_its_volume_and_every_volume_a_mount(document):
    pod = template(built(document))
    containers = pod["containers"] + pod.get("initContainers", [])
    mounted = [mount["name"] for container in containers for mount in container["volumeMounts"]]
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    for container in containers:
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(paths) == len(set(paths))


@given(random_documents)
def test_every_object_has_a_name_of_its_own_and_belongs_to_the_service(document):
    found = built(document)
    assert len({(item["kind"], item["metadata"]["name"]) for item in found}) == len(found)
    for item in found:
        assert item["metadata"]["labels"]["nightjar.dev/service"] == OWNER.name
        assert item["metadata"]["ownerReferences"][0]["uid"] == OWNER.uid


@given(random_documents)
def test_a_pod_has_time_to_drain(document):
    pod = template(built(document))
    sleep = pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= sleep + seconds(document["spec"].get("drainTimeout", "30s"))


@given(random_documents)
def test_no_planner_or_memory_changes_a_pod_but_whether_there_is_elastic_memory(document):
    found, other = built(document), copy.deepcopy(document)
    elastic = documents.from_object(document).spec.memory.elastic
    other["spec"] |= {"planner": {"policy": "off"}, "memory": {"persistSteps": 9, "elastic": elastic}}
    assert template(found) == template(built(other))


@given(random_documents)
def test_a_sidecar_and_its_settings_come_together(document):
    found = built(document)
    assert ("initContainers" in template(found)) == ("ConfigMap" in {item["kind"] for item in found})


@given(random_documents)
def test_reading_what_was_written_changes_nothing(document):
    found = built(document)
    service = documents.from_object(document)
    again = documents.from_object(service.model_dump(mode="json", by_alias=True))
    assert manifests(again, OWNER, Images("e", "s")) == found
