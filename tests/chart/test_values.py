"""Values: each is described, none is unknown, and a wrong one is refused with its place."""

import json
from pathlib import Path

import pytest
import yaml

CHART = Path(__file__).parents[2] / "charts" / "nightjar"
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
TEXT = (CHART / "values.yaml").read_text(encoding="utf-8")
VALUES = yaml.safe_load(TEXT)
# Maps whose keys are the person's own.
FREE = {
    ("nodeSelector",),
    ("resources", "requests"),
    ("resources", "limits"),
    ("monitoring", "labels"),
    ("monitoring", "dashboards", "labels"),
}


def leaves(value, path=()):
    if isinstance(value, dict) and value and path not in FREE:
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path


def closed(part, path=()):
    for name, inner in part.get("properties", {}).items():
        yield (*path, name), inner
        yield from closed(inner, (*path, name))


def described(path):
    part = SCHEMA
    for name in path:
        part = part["properties"][name]
    return part


def test_every_value_is_in_the_schema_and_described_there():
    for path in leaves(VALUES):
        for length in range(1, len(path) + 1):
            assert described(path[:length])["description"].endswith("."), path


def test_every_part_of_the_schema_is_a_value():
    known = {path[:length] for path in leaves(VALUES) for length in range(1, len(path) + 1)}
    for path, part in closed(SCHEMA):
        # Only what Helm itself adds, or what has no default: parts of an affinity, of an issuer.
        if path[0] in ("global", "affinity") or path[:3] == ("webhook", "certificate", "issuerRef"):
            continue
        assert path in known, path
        assert part.get("type") != "object" or path in FREE or part["additionalProperties"] is False, path


def test_every_paragraph_of_the_values_says_what_it_is_about():
    assert all("#" in paragraph for paragraph in TEXT.split("\n\n"))


WRONG = [
    ({"replica": 3}, "replica"),
    ({"replicas": 0}, "/replicas"),
    ({"replicas": "two"}, "/replicas"),
    ({"namespaces": "team-a"}, "/namespaces"),
    ({"namespaces": ["Team_A"]}, "/namespaces/0"),
    ({"images": {"operator": {"tag": 1.0}}}, "/images/operator/tag"),
    ({"images": {"engine": {"digest": "sha256:short"}}}, "/images/engine/digest"),
    ({"images": {"sidecar": {"repository": "registry.example.com/a:1"}}}, "/images/sidecar/repository"),
    ({"images": {"registry": "registry.example.com/"}}, "/images/registry"),
    ({"images": {"pullPolicy": "Sometimes"}}, "/images/pullPolicy"),
    ({"resources": {"claims": []}}, "/resources"),
    ({"tolerations": [{"keys": "gpu"}]}, "/tolerations/0"),
    ({"networkPolicy": {"apiServerPorts": []}}, "/networkPolicy/apiServerPorts"),
    ({"webhook": {"failurePolicy": "Warn"}}, "/webhook/failurePolicy"),
    ({"webhook": {"gpuMemoryGib": 0}}, "/webhook/gpuMemoryGib"),
    ({"webhook": {"certificate": {"secretName": "mine"}}}, "/webhook/certificate/caBundle"),
    ({"webhook": {"certificate": {"secretName": "mine", "caBundle": "text"}}}, "/webhook/certificate/caBundle"),
    ({"webhook": {"certificate": {"issuerRef": {"kind": "ClusterIssuer"}}}}, "/webhook/certificate/issuerRef"),
    ({"monitoring": {"serviceMonitor": {"interval": "30"}}}, "/monitoring/serviceMonitor/interval"),
    ({"monitoring": {"dashboards": {"labels": {"a": 1}}}}, "/monitoring/dashboards/labels/a"),
]


@pytest.mark.parametrize(("values", "place"), WRONG, ids=[place for _, place in WRONG])
def test_a_wrong_value_is_refused_with_its_place(render, values, place):
    with pytest.raises(RuntimeError, match="values don't meet the specifications") as refusal:
        render(values)
    # As Helm 4 writes it, or as Helm 3 does.
    assert any(written in str(refusal.value) for written in (place, place.removeprefix("/").replace("/", ".")))


def test_the_chart_can_be_a_part_of_another(render, tmp_path):
    """Helm then hands it `global`, which nobody wrote into its values."""
    parent = tmp_path / "parent"
    (parent / "charts").mkdir(parents=True)
    (parent / "charts" / "nightjar").symlink_to(CHART)
    (parent / "Chart.yaml").write_text("apiVersion: v2\nname: parent\nversion: 1.0.0\n")
    values = {"global": {"team": "a"}, "nightjar": {"replicas": 1}}
    assert any(found["kind"] == "Deployment" for found in render(values, chart=parent))
