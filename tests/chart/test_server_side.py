"""What the API server says to the chart's objects, without keeping them."""

import pytest
import yaml


def stand_in(group, version, kind, plural):
    """A definition of somebody else's kind that takes anything: that it exists is all that is asked of it."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests only"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}],
        },
    }


@pytest.fixture(scope="module")
def neighbours(kubectl, get):
    """cert-manager and the Prometheus operator as far as the API server can see, unless the cluster has them."""
    kinds = [
        stand_in("cert-manager.io", "v1", "Certificate", "certificates"),
        stand_in("cert-manager.io", "v1", "Issuer", "issuers"),
        stand_in("monitoring.coreos.com", "v1", "ServiceMonitor", "servicemonitors"),
        stand_in("monitoring.coreos.com", "v1", "PrometheusRule", "prometheusrules"),
    ]
    names = {kind["metadata"]["name"] for kind in kinds}
    missing = names - {found["metadata"]["name"] for found in get("crd") or []}
    made = [kind for kind in kinds if kind["metadata"]["name"] in missing]
    if made:
        kubectl("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(made))
    kubectl("wait", "--for=condition=Established", "--timeout=500s", "crd", *names)
    yield
    if made:
        # An API server that has not served a kind yet takes minutes to delete it.
        kubectl("delete", "crd", *missing, "--wait=false")


AUTHORITY = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"
VALUES = {
    "as it comes": {},
    "everything": {
        "replicas": 3,
        "webhook": {"enabled": True, "failurePolicy": "Fail", "gpuMemoryGib": 80},
        "monitoring": {part: {"enabled": True} for part in ("serviceMonitor", "rules", "dashboards")},
        "images": {"registry": "registry.example.com/team", "pullSecrets": ["pull"]},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "system", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
    },
    "nothing": {
        "replicas": 1,
        "crds": {"install": False},
        "networkPolicy": {"enabled": False},
        "namespaces": ["default"],
        "webhook": {"enabled": True, "certificate": {"secretName": "mine", "caBundle": AUTHORITY}},
    },
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES.keys())
def test_the_api_server_takes_everything_without_a_warning(
    kubectl, render, namespace, neighbours, until, unpublished, values
):
    """Unknown fields are refused. The kinds of others are stand-ins here, so what is in theirs is not checked."""
    objects = render(values, namespace=namespace)
    text = yaml.safe_dump_all(objects)

    # What an earlier release left of the definition is another manager's.
    options = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")

    def taken():
        try:
            return kubectl("apply", *options, "-f", "-", text=text, said=True)
        except RuntimeError as refusal:
            if unpublished(refusal):
                return None
            raise

    answer = until(taken, "the kinds of others to be served")
    assert answer.count("serverside-applied") == len(objects)
    assert "Warning" not in answer
