"""The page about metrics and what the code registers."""

import re
from pathlib import Path

import pytest

from nightjar_operator import operator_metrics
from nightjar_sidecar import metrics as sidecar_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
REGISTERED = {"Of a sidecar": sidecar_metrics.Metrics, "Of the operator": operator_metrics.Metrics}
BASE_UNITS = {"seconds": "_seconds", "seconds per token": "_seconds_per_token"}


def described(heading):
    """Name, type, unit and labels of every row."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    for row in section.splitlines():
        if row.startswith("| `"):
            name, kind, unit, labels, meaning = (cell.strip() for cell in row.strip("|").split("|"))
            assert meaning.endswith("."), name
            yield name.strip("`"), kind, unit, tuple(re.findall(r"`(\w+)`", labels))


def labels(collector):
    """None of one that is read at a scrape."""
    return getattr(collector, "_labelnames", ())


def registered(made):
    for collector, (name, *_) in made.registry._collector_to_names.items():
        (family,) = collector.describe()
        yield (f"{name}_total" if family.type == "counter" else name), family.type, labels(collector)


@pytest.mark.parametrize("heading", REGISTERED)
def test_the_page_lists_every_metric_with_its_type_and_labels(heading):
    rows = [(name, kind, labels) for name, kind, _, labels in described(heading)]
    assert rows == list(registered(REGISTERED[heading]()))


@pytest.mark.parametrize("heading", REGISTERED)
def test_a_metric_in_a_base_unit_is_named_after_it(heading):
    for name, _, unit, _ in described(heading):
        ending = BASE_UNITS.get(unit)
        assert ending is None or name.removesuffix("_total").endswith(ending), name


@pytest.mark.parametrize("heading", REGISTERED)
def test_promtool_has_nothing_to_remark_on_the_names(promtool, heading):
    made = REGISTERED[heading]()
    for collector in made.registry._collector_to_names:
        if labels(collector):
            collector.labels(*labels(collector))
    assert promtool("check", "metrics", text=made.text().decode()) == (0, "")
