"""What of a live object is ours, by the API server's bookkeeping."""

import copy

import pytest

from nightjar_operator.owned_fields import fingerprint


@pytest.fixture
def live():
    """A Service with a port and a label of ours, and a label of somebody else."""
    return {
        "metadata": {
            "name": "chat",
            "resourceVersion": "7",
            "labels": {"ours": "1", "theirs": "1"},
            "finalizers": ["ours/f", "theirs/f"],
            "managedFields": [
                {
                    "manager": "nightjar-operator",
                    "operation": "Apply",
                    "fieldsV1": {
                        "f:metadata": {"f:labels": {"f:ours": {}}, "f:finalizers": {'v:"ours/f"': {}}},
                        "f:spec": {
                            "f:ports": {
                                'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:name": {}, "f:port": {}},
                            },
                            "f:selector": {},
                        },
                    },
                },
                {
                    "manager": "kubectl",
                    "operation": "Update",
                    "fieldsV1": {"f:metadata": {"f:labels": {"f:theirs": {}}}},
                },
            ],
        },
        "spec": {
            "clusterIP": "10.0.0.1",
            "selector": {"app": "chat"},
            "ports": [{"name": "openai", "port": 80, "protocol": "TCP", "targetPort": 8000}],
        },
        "status": {},
    }


def changed(live, edit):
    other = copy.deepcopy(live)
    edit(other)
    return fingerprint(other) != fingerprint(live)


@pytest.mark.parametrize(
    "edit",
    [
        lambda found: found["metadata"]["labels"].update(ours="2"),
        lambda found: found["metadata"]["labels"].pop("ours"),
        lambda found: found["metadata"]["finalizers"].remove("ours/f"),
        lambda found: found["spec"]["ports"][0].update(name="other"),
        lambda found: found["spec"]["ports"][0].update(port=81),
        lambda found: found["spec"]["ports"].clear(),
        lambda found: found["spec"].update(selector={"app": "other"}),
        lambda found: found["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].pop("f:selector"),
        lambda found: found["metadata"]["managedFields"].pop(0),
    ],
)
def test_a_change_of_what_is_ours_is_seen(live, edit):
    assert changed(live, edit)


@pytest.mark.parametrize(
    "edit",
    [
        lambda found: found["metadata"]["labels"].update(theirs="2"),
        lambda found: found["metadata"]["finalizers"].remove("theirs/f"),
        lambda found: found["metadata"].update(resourceVersion="8"),
        lambda found: found["spec"]["ports"].insert(0, {"name": "metrics", "port": 9000, "protocol": "TCP"}),
        lambda found: found["spec"].update(clusterIP="10.0.0.2"),
        lambda found: found.update(status={"loadBalancer": {}}),
        lambda found: found["metadata"]["managedFields"].reverse(),
    ],
)
def test_a_change_of_what_is_not_ours_is_not(live, edit):
    assert not changed(live, edit)
