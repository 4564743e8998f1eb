"""Dashboards show what exists, and Grafana can lay them out."""

import importlib.util
import json
import re
from itertools import combinations
from pathlib import Path

import pytest

from nightjar_operator import operator_metrics
from nightjar_sidecar import metrics as sidecar_metrics

FOLDER = Path(__file__).parents[2] / "charts" / "nightjar" / "files" / "dashboards"
FILES = sorted(FOLDER.glob("*.json"))
# What Prometheus adds to every metric of a pod.
TARGET = {"namespace", "job", "pod"}
WIDTH = 24


def series():
    """Every series of ours by its name, with its labels."""
    for made in (sidecar_metrics.Metrics(), operator_metrics.Metrics()):
        for collector, names in made.registry._collector_to_names.items():
            for name in names:
                # One that is read at a scrape has no labels.
                yield name, {*getattr(collector, "_labelnames", ())} | ({"le"} if name.endswith("_bucket") else set())


SERIES = dict(series())


@pytest.fixture(params=FILES, ids=lambda file: file.stem)
def dashboard(request):
    return json.loads(request.param.read_text(encoding="utf-8"))


def expressions(dashboard):
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def queries(dashboard):
    yield from (expression for _, expression in expressions(dashboard))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def selected(expression):
    """Names of series with the labels that are asked of them."""
    for name, matchers in re.findall(r"\b((?:nightjar_|vllm:)\w+)(?:\{([^}]*)\})?", expression):
        yield name, set(re.findall(r"(\w+)\s*[=!]", re.sub(r'"[^"]*"', '""', matchers)))


def test_there_are_dashboards_for_a_service_and_for_the_operator():
    assert [file.stem for file in FILES] == ["operator", "service"]


def test_every_metric_of_ours_exists_with_the_labels_that_are_asked_for(dashboard):
    for expression in queries(dashboard):
        for name, labels in selected(expression):
            if name.startswith("nightjar_"):
                assert name in SERIES, expression
                assert labels <= SERIES[name] | TARGET, expression


def test_series_are_grouped_by_labels_that_they_have(dashboard):
    for _, expression in expressions(dashboard):
        grouped = {label.strip() for labels in re.findall(r"by \(([^)]*)\)", expression) for label in labels.split(",")}
        known = set.union(*(SERIES.get(name, {"le"}) for name, _ in selected(expression)))
        assert grouped <= known | TARGET, expression


def test_every_metric_of_vllm_is_one_of_the_version_that_is_served(dashboard):
    package = importlib.util.find_spec("vllm").submodule_search_locations[0]
    source = (Path(package) / "v1" / "metrics" / "loggers.py").read_text(encoding="utf-8")
    known = set(re.findall(r'"(vllm:\w+)"', source))
    for expression in queries(dashboard):
        for name, _ in selected(expression):
            if name.startswith("vllm:"):
                assert name.removesuffix("_bucket") in known, expression


def test_every_metric_of_ours_that_has_no_panel_is_named_here():
    shown = {name for file in FILES for query in queries(json.loads(file.read_text())) for name, _ in selected(query)}
    families = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in SERIES}
    missing = {name for name in families if not any(one.startswith(name) for one in shown)}
    # Numbers that only mean something beside others, or that another panel shows better.
    assert missing == {
        "nightjar_engine_connections",
        "nightjar_engine_connections_total",
        "nightjar_catch_up_tokens",
        "nightjar_catch_up_tokens_total",
        "nightjar_switch_cost_seconds_per_token",
        "nightjar_plan_version",
    }


def test_panels_lie_side_by_side_on_the_grid(dashboard):
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= WIDTH
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


def test_panels_are_described_and_ask_the_source_that_was_chosen(dashboard):
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    for panel in dashboard["panels"]:
        assert panel["description"].endswith("."), panel["title"]
        for asked in (panel, *panel["targets"]):
            assert asked["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = {name for query in queries(dashboard) for name in re.findall(r"\$(?!__)(\w+)", query)}
    assert used | {"datasource"} == variables


def test_promtool_can_read_every_expression(promtool, tmp_path):
    rules = [
        {"record": "checked", "expr": re.sub(r"\$__rate_interval", "5m", expression)}
        for file in FILES
        for _, expression in expressions(json.loads(file.read_text(encoding="utf-8")))
    ]
    file = tmp_path / "rules.yaml"
    # Two rules that record the same are remarked on, so each is alone in its group.
    groups = [{"name": f"panel-{number}", "rules": [rule]} for number, rule in enumerate(rules)]
    file.write_text(json.dumps({"groups": groups}))
    code, said = promtool("check", "rules", "--lint=none", file)
    assert code == 0, said
