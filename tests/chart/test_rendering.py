"""What the chart makes of values, without a cluster."""

from pathlib import Path

import pytest
import yaml

from nightjar_benchmarks.images.parts import PARTS, Images, reference

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "nightjar"
RULES = yaml.safe_load((ROOT / "operator" / "nightjar_operator" / "rbac.yaml").read_text())
DEFINITION = ROOT / "crds" / "nightjarservices.nightjar.dev.yaml"
EVERYTHING = {
    "images": {"registry": "registry.example.com/team", "pullSecrets": ["pull"], "engine": {"tag": "cpu"}},
    "webhook": {"enabled": True, "gpuMemoryGib": 80},
    "monitoring": {
        "labels": {"release": "prometheus"},
        "serviceMonitor": {"enabled": True},
        "rules": {"enabled": True, "runbooks": "https://docs.example.com/runbooks"},
        "dashboards": {"enabled": True},
    },
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "system-cluster-critical",
}


def only(objects, kind, name=None):
    (found,) = [one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    return found


def pods(objects):
    for one in objects:
        if one["kind"] == "Pod":
            yield one["spec"]
        if one["kind"] == "Deployment":
            yield one["spec"]["template"]["spec"]


def test_helm_has_nothing_to_remark(offline):
    assert "[WARNING]" not in offline("lint", "--strict", CHART)


@pytest.mark.parametrize(
    ("copy", "source"),
    [
        ("nightjarservices.nightjar.dev.yaml", DEFINITION),
        ("rbac.yaml", ROOT / "operator" / "nightjar_operator" / "rbac.yaml"),
    ],
)
def test_files_of_the_chart_are_copies_of_what_the_operator_is_tested_with(copy, source):
    assert (CHART / "files" / copy).read_bytes() == source.read_bytes(), "run `make crds`"


def test_images_that_were_built_here_are_what_the_chart_installs(render):
    built = Images.of({part.name: reference(part.name, [b"inputs"]) for part in PARTS})
    (container,) = only(render(built.values()), "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == built.operator
    assert {f"--engine-image={built.engine}", f"--sidecar-image={built.sidecar}"} <= set(container["args"])


def test_the_chart_has_the_version_of_the_distribution():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'version = "{chart["appVersion"]}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_definition_is_the_generated_one_and_outlives_the_release(render):
    found = only(render(), "CustomResourceDefinition")
    assert found["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert found == yaml.safe_load(DEFINITION.read_text(encoding="utf-8"))


def test_who_installs_it_without_the_definition_needs_no_right_to_it(render):
    found = render({"crds": {"install": False}, "namespaces": ["nj"]})
    assert {one["kind"] for one in found if "namespace" not in one["metadata"]} == set()


def test_in_the_whole_cluster_the_operator_may_do_what_it_was_tested_with(render):
    found = render()
    role = only(found, "ClusterRole", "nj.nightjar-operator")
    assert role["rules"] == RULES["rules"]
    binding = only(found, "ClusterRoleBinding")
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", role["metadata"]["name"])
    assert only(found, "Role")["rules"] == RULES["lease"]


def test_in_some_namespaces_it_may_do_the_same_there_and_nothing_elsewhere(render):
    found = render({"namespaces": ["team-a", "team-b"]})
    assert [one for one in found if one["kind"] == "ClusterRoleBinding"] == []
    roles = {one["metadata"]["namespace"]: one["rules"] for one in found if one["kind"] == "Role"}
    assert roles == {"nj": RULES["lease"], "team-a": RULES["rules"], "team-b": RULES["rules"]}
    bound = {one["metadata"]["namespace"]: one for one in found if one["kind"] == "RoleBinding"}
    assert bound.keys() == roles.keys()
    (account,) = {(one["subjects"][0]["namespace"], one["subjects"][0]["name"]) for one in bound.values()}
    assert account == ("nj", only(found, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"])


def test_nothing_else_is_granted_to_the_operator(render):
    """Roles for people stand beside its own, and nobody is bound to them here."""
    found = render(EVERYTHING)
    bindings = [one for one in found if one["kind"] in ("ClusterRoleBinding", "RoleBinding")]
    assert {one["roleRef"]["name"] for one in bindings} == {"nj.nightjar-operator", "nightjar-operator-lease"}
    for people in ("view", "edit"):
        labels = only(found, "ClusterRole", f"nj.nightjar-operator-{people}")["metadata"]["labels"]
        assert labels[f"rbac.authorization.k8s.io/aggregate-to-{people}"] == "true"


@pytest.mark.parametrize(
    ("release", "namespace"), [("n", "on"), ("on", "007"), ("1e3", "null"), ("a.b", "x"), ("r" * 53, "n" * 63)]
)
def test_any_name_of_a_release_and_its_namespace_stays_text(render, release, namespace):
    for one in render(EVERYTHING | {"namespaces": ["123", "true"]}, release, namespace):
        metadata = one["metadata"]
        texts = [metadata["name"], metadata.get("namespace", ""), *metadata.get("labels", {}).values()]
        assert all(isinstance(text, str) for text in texts), one
        assert len(metadata["name"]) <= (63 if one["kind"] == "Service" else 253), one
    container = only(render(release=release, namespace=namespace), "Deployment")["spec"]["template"]["spec"]
    assert f"--lease={namespace}/" in container["containers"][0]["args"][2]


def test_images_are_named_by_registry_tag_and_digest(render):
    digest = "sha256:" + "0" * 64
    images = {"registry": "r.example.com:5000/t", "operator": {"digest": digest}, "sidecar": {"tag": "7"}}
    found = render({"images": images})
    (container,) = only(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"r.example.com:5000/t/nightjar-operator@{digest}"
    assert container["args"][:2] == [
        "--engine-image=r.example.com:5000/t/nightjar-engine:0.1.0",
        "--sidecar-image=r.example.com:5000/t/nightjar-sidecar:7",
    ]


def test_one_operator_has_no_budget_and_two_have_one(render):
    assert [one for one in render({"replicas": 1}) if one["kind"] == "PodDisruptionBudget"] == []
    assert only(render(), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1


def test_a_new_version_of_the_chart_alone_restarts_no_operator(render):
    template = only(render(), "Deployment")["spec"]["template"]
    assert not any("helm.sh/chart" in label for label in template["metadata"]["labels"])


def test_pods_get_what_all_pods_of_the_release_need(render):
    for pod in pods(render(EVERYTHING)):
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
        assert pod["nodeSelector"] == {"pool": "system"}
        assert pod["tolerations"] == [{"operator": "Exists"}]
        for container in pod["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_the_network_policy_lets_probes_and_webhook_in_and_the_rest_of_the_cluster_alone(render):
    policy = only(render(EVERYTHING | {"namespaces": ["a"]}), "NetworkPolicy")["spec"]
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [8080, 9443]
    api, sidecars = policy["egress"]
    assert [port["port"] for port in api["ports"]] == [443, 6443, 8443, 16443]
    (peer,) = sidecars["to"]
    assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == ["a"]
    assert peer["podSelector"]["matchExpressions"] == [{"key": "nightjar.dev/service", "operator": "Exists"}]


def test_the_webhook_has_the_certificate_of_cert_manager_or_yours(render):
    found = render({"webhook": {"enabled": True}})
    certificate = only(found, "Certificate")
    assert certificate["spec"]["dnsNames"] == ["nightjar-operator.nj.svc"]
    assert certificate["spec"]["issuerRef"]["name"] == only(found, "Issuer")["metadata"]["name"]
    hook = only(found, "ValidatingWebhookConfiguration")
    named = hook["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert named == f"nj/{certificate['metadata']['name']}"
    issuer = {"name": "ours", "kind": "ClusterIssuer"}
    theirs = render({"webhook": {"enabled": True, "certificate": {"issuerRef": issuer}}})
    assert only(theirs, "Certificate")["spec"]["issuerRef"] == issuer
    assert "Issuer" not in {one["kind"] for one in theirs}


def test_your_own_certificate_is_mounted_and_trusted(render):
    authority = "-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n"
    own = {"secretName": "mine", "caBundle": authority}
    found = render({"webhook": {"enabled": True, "certificate": own}, "namespaces": ["a"]})
    assert not {"Certificate", "Issuer"} & {one["kind"] for one in found}
    (hook,) = only(found, "ValidatingWebhookConfiguration")["webhooks"]
    assert hook["clientConfig"]["caBundle"]
    assert hook["clientConfig"]["service"]["path"] == "/validate"
    assert hook["namespaceSelector"]["matchExpressions"][0]["values"] == ["a"]
    volumes = only(found, "Deployment")["spec"]["template"]["spec"]["volumes"]
    assert {"name": "certificate", "secret": {"secretName": "mine"}} in volumes


def test_services_reach_ports_and_selectors_reach_pods_that_exist(render):
    found = render(EVERYTHING)
    template = only(found, "Deployment")["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    ports = {port["name"]: port["containerPort"] for port in template["spec"]["containers"][0]["ports"]}
    service = only(found, "Service")
    assert [port["targetPort"] for port in service["spec"]["ports"]] == list(ports)
    assert service["spec"]["selector"].items() <= labels
    for kind, part in (
        ("PodDisruptionBudget", "selector"),
        ("NetworkPolicy", "podSelector"),
        ("Deployment", "selector"),
    ):
        assert only(found, kind)["spec"][part]["matchLabels"].items() <= labels
    monitor = only(found, "ServiceMonitor")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_alerts_and_dashboards_are_the_files_with_your_runbooks(render):
    found = render(EVERYTHING)
    alerts = (CHART / "files" / "alerts.yaml").read_text(encoding="utf-8")
    expected = yaml.safe_load(alerts.replace("docs/runbooks.md", "https://docs.example.com/runbooks"))
    assert only(found, "PrometheusRule")["spec"] == expected
    assert only(found, "PrometheusRule")["metadata"]["labels"]["release"] == "prometheus"
    for file in (CHART / "files" / "dashboards").iterdir():
        held = only(found, "ConfigMap", f"nightjar-operator-dashboard-{file.stem}")
        assert held["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert held["data"] == {file.name: file.read_text(encoding="utf-8")}
