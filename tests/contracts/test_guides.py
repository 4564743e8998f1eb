"""What the pages for people who run Nightjar name exists: values, fields, reasons, permissions, panels, anchors."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("install", "tuning", "troubleshooting", "runbooks", "metrics")]
VALUES = json.loads((ROOT / "charts" / "nightjar" / "values.schema.json").read_text(encoding="utf-8"))
DEFINITION = yaml.safe_load((ROOT / "crds" / "nightjarservices.nightjar.dev.yaml").read_text(encoding="utf-8"))
SPEC = DEFINITION["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]


def named(page):
    return re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8"))


def there(schema, path):
    for name in path.split("."):
        if name in schema.get("properties", {}):
            schema = schema["properties"][name]
        elif not isinstance(schema.get("additionalProperties"), dict):
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_field_and_value_a_page_names_exists(page):
    paths = [name for name in named(page) if re.fullmatch(r"[a-z][A-Za-z]*(\.[a-z][A-Za-z]*)+", name)]
    for path in paths:
        bare = path.removeprefix("spec.")
        known = there(SPEC, bare) or there(VALUES, path) or path.startswith(("status.", "metadata."))
        assert known or path in {"kubernetes.default", "nightjar.dev", "monitoring.coreos.com", "events.k8s.io"}, path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_value_a_command_sets_exists(page):
    for path in re.findall(r"--set(?:-file)? '?([A-Za-z.]+)=", page.read_text(encoding="utf-8")):
        assert there(VALUES, path), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_to_a_section_leads_to_one(page):
    for file, anchor in re.findall(r"\]\(([^):#]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        text = (page.parent / file if file else page).read_text(encoding="utf-8")
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert anchor in anchors, anchor


def test_the_permissions_of_the_install_page_are_those_of_the_operator():
    rules = yaml.safe_load((ROOT / "operator" / "nightjar_operator" / "rbac.yaml").read_text(encoding="utf-8"))
    granted = {
        (group or "core", *rest)
        for rule in rules["rules"] + rules["lease"]
        for group, *rest in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8").partition("## What the operator may do")[2]
    told = set()
    for row in re.findall(r"^\| (`.*|core.*) \|$", text, re.MULTILINE):
        group, resources, verbs, why = (cell.strip() for cell in row.split("|"))
        assert why.endswith("."), row
        names = [re.findall(r"`([^`]+)`", cell) for cell in (resources, verbs)]
        told |= set(itertools.product([group.strip("`")], *names))
    assert told == granted


def test_every_reason_that_is_not_well_is_explained():
    code = (ROOT / "operator" / "nightjar_operator" / "diagnosis.py").read_text(encoding="utf-8")
    answers = re.findall(r'Condition\(\s*"(\w+)", "(\w+)", "(\w+)"', code)
    well = {"Accepted": "True", "Ready": "True", "RolledOut": "True", "Adaptive": "True", "SettingsSynced": "True"}
    ill = {(kind, reason) for kind, status, reason in answers if status != well.get(kind, "False")}
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE)
    explained = {(kind, reason) for kind, cell in rows for reason in re.findall(r"`(\w+)`", cell)}
    # `SettingsSynced` is not asked of a service without pods.
    assert ill - explained == {("SettingsSynced", "NoPod")}


def test_every_panel_the_tuning_page_names_is_on_a_dashboard():
    dashboard = ROOT / "charts" / "nightjar" / "files" / "dashboards" / "service.json"
    titles = {panel["title"] for panel in json.loads(dashboard.read_text(encoding="utf-8"))["panels"]}
    page = (ROOT / "docs" / "tuning.md").read_text(encoding="utf-8")
    table = page.partition("## What to watch")[2].partition("\n## ")[0]
    watched = set(re.findall(r"^\| ([^|`]+) \| `", table, re.MULTILINE))
    assert watched
    assert watched <= titles
