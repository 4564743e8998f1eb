"""A release in a real cluster, from installing to uninstalling.

No kubelet runs there: pods are admitted, not started.
"""

import shutil
import threading
from pathlib import Path

import pytest
import yaml

CHART = Path(__file__).parents[2] / "charts" / "nightjar"
CRD = "nightjarservices.nightjar.dev"


@pytest.fixture
def previous(tmp_path):
    """The chart as an older version could have been: another tag, and a definition without one of today's fields."""
    chart = tmp_path / "previous"
    shutil.copytree(CHART, chart)
    about = chart / "Chart.yaml"
    about.write_text(about.read_text().replace("0.1.0", "0.0.9"))
    file = chart / "files" / f"{CRD}.yaml"
    definition = yaml.safe_load(file.read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["sidecar"]
    file.write_text(yaml.safe_dump(definition))
    return chart


@pytest.fixture
def no_definition(controllers, kubectl, get):
    """No NightjarService is known; other tests install their definition themselves."""
    if get("crd", CRD) is not None:
        # An API server that has not served a kind yet takes minutes to delete it.
        get(CRD, "--all-namespaces")
        kubectl("delete", "crd", CRD, "--timeout=500s")


def fields(get):
    definition = get("crd", CRD)
    return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]


def image(get, namespace):
    deployment = get("deployment", "nightjar-operator", "-n", namespace)
    return deployment["spec"]["template"]["spec"]["containers"][0]["image"]


@pytest.mark.usefixtures("no_definition")
def test_a_release_lives_from_installing_to_uninstalling(
    helm, kubectl, get, installed, document, namespace, until, previous
):
    installed({}, chart=previous, options=())
    assert image(get, namespace) == "nightjar-operator:0.0.9"
    assert "sidecar" not in fields(get)
    # The namespace takes restricted pods only.
    until(lambda: len(get("pods", "-n", namespace)) == 2, "both operators to be admitted")
    kubectl("apply", "-n", namespace, "-f", "-", text=document("chat"))
    uid = get("njs", "chat", "-n", namespace)["metadata"]["uid"]

    helm("upgrade", "nightjar", CHART, "--namespace", namespace)
    assert image(get, namespace) == "nightjar-operator:0.1.0"
    assert "sidecar" in fields(get)

    def takes_the_new_field():
        kubectl("apply", "-n", namespace, "-f", "-", text=document("chat", sidecar={"image": "mine"}))
        return get("njs", "chat", "-n", namespace)["spec"].get("sidecar", {}).get("image") == "mine"

    until(takes_the_new_field, "the upgraded definition to be served")

    helm("rollback", "nightjar", "1", "--namespace", namespace)
    assert image(get, namespace) == "nightjar-operator:0.0.9"
    assert "sidecar" not in fields(get)
    until(lambda: "sidecar" not in get("njs", "chat", "-n", namespace)["spec"], "the older definition to be served")

    helm("uninstall", "nightjar", "--namespace", namespace)
    for kind in ("deployment", "service", "role", "rolebinding", "serviceaccount", "pdb", "networkpolicy", "configmap"):
        left = get(kind, "-n", namespace, "-l", "app.kubernetes.io/instance=nightjar")
        assert not left, kind
    assert not get("clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/instance=nightjar")
    # The definition stays, with every service, and the next release takes it over.
    service = get("njs", "chat", "-n", namespace)
    assert (service["metadata"]["uid"], service["metadata"].get("deletionTimestamp")) == (uid, None)
    installed({}, options=())
    helm("uninstall", "nightjar", "--namespace", namespace)
    helm("install", "another", CHART, "--namespace", namespace, "--take-ownership")
    # What was only hidden while the older definition was served is there again.
    until(
        lambda: get("njs", "chat", "-n", namespace)["spec"].get("sidecar", {}).get("image") == "mine",
        "the field to be back",
    )
    helm("uninstall", "another", "--namespace", namespace)

    kubectl("delete", "crd", CRD, "--timeout=500s")
    assert get("crd", CRD) is None


def test_a_second_release_is_told_who_owns_the_definition(helm, installed, namespace):
    installed({"namespaces": [namespace]})
    with pytest.raises(RuntimeError, match=rf"CustomResourceDefinition.*{CRD}.*exists and cannot be imported"):
        helm("install", "second", CHART, "--namespace", namespace, "--set", f"namespaces={{{namespace}}}")
    installed({"namespaces": [namespace], "crds": {"install": False}}, release="third")


def test_helm_test_passes_when_its_pod_succeeds(helm, kubectl, ours, get, installed, namespace, until):
    """The namespace admits the pod; that it succeeds is played here, what it runs is tested below."""
    installed({"namespaces": [namespace]})
    answers = []
    asking = threading.Thread(target=lambda: answers.append(helm("test", "nightjar", "--namespace", namespace)))
    asking.start()
    until(lambda: get("pod", "nightjar-operator-test", "-n", namespace), "the test's pod")
    done = '{"status": {"phase": "Succeeded"}}'
    pod = ("nightjar-operator-test", "-n", namespace)
    kubectl("patch", "pod", *pod, "--subresource=status", "--type=merge", "-p", done)
    asking.join(600)
    assert "Phase:          Succeeded" in answers[0]
    until(lambda: get("pod", *pod) is None, "the pod to go")


def test_the_next_command_of_the_notes_makes_a_service(helm, kubectl, get, installed, namespace):
    installed({"namespaces": [namespace]})
    arguments = ("--namespace", namespace, "--set", f"namespaces={{{namespace}}}", "--dry-run=client")
    notes = helm("install", "nightjar", CHART, *arguments).partition("NOTES:")[2]
    assert f"kubectl apply -n {namespace} -f - <<EOF" in notes
    assert "--set images.registry" in notes
    text = notes.partition("<<EOF\n")[2].partition("  EOF")[0]
    kubectl("create", "-n", namespace, "--validate=strict", "-f", "-", text=text)
    assert get("njs", "chat", "-n", namespace)["spec"]["draft"]["numSpeculativeTokens"] == 3
