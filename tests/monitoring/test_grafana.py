"""Dashboards as Grafana's own types read them: what they would not know is lost on the way, and found here."""

import copy
import importlib.util
import json
from pathlib import Path

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

FILES = sorted((Path(__file__).parents[2] / "charts" / "nightjar" / "files" / "dashboards").glob("*.json"))

register_default_plugins()


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def dashboard(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


def unknown(document):
    """Paths of what does not come back when the document is read and written again."""
    return list(lost(document, json.loads(JSONEncoder().encode(Dashboard.from_json(document)))))


def lost(wanted, found, path=""):
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, inner in wanted.items():
            yield from lost(inner, found.get(key), f"{path}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
            yield from lost(one, other, f"{path}.{index}")
    elif wanted != found:
        yield path


def test_grafana_knows_every_field(dashboard):
    assert unknown(dashboard) == []


def test_grafana_has_every_kind_of_panel(dashboard):
    kinds = {panel["type"] for panel in dashboard["panels"]}
    assert {
        kind for kind in kinds if importlib.util.find_spec(f"grafana_foundation_sdk.models.{kind}") is None
    } == set()


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ((), "panel"),
        (("panels", 0), "gridpos"),
        (("panels", 0, "options"), "legends"),
        (("panels", 0, "fieldConfig", "defaults"), "units"),
        (("panels", 0, "targets", 0), "expression"),
        (("templating", "list", 1), "includeall"),
    ],
)
def test_a_field_that_is_misspelt_is_found(dashboard, part, wrong):
    changed = copy.deepcopy(dashboard)
    inner = changed
    for key in part:
        inner = inner[key]
    inner[wrong] = {}
    assert unknown(changed) == [".".join(map(str, ("", *part, wrong)))]
