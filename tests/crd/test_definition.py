"""The custom resource definition as a file."""

import json
import re
from pathlib import Path

import pytest
import yaml

from nightjar_api import names
from nightjar_api.service import Metadata, NightjarServiceSpec
from nightjar_operator import crd, reference
from nightjar_operator.schema import structural

FILE = Path(__file__).parents[2] / "crds" / "nightjarservices.nightjar.dev.yaml"
DEFINITION = yaml.safe_load(FILE.read_text(encoding="utf-8"))
(VERSION,) = DEFINITION["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def parts(schema, path=""):
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from parts(inner, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from parts(schema[key], f"{path}[]")


def test_the_file_is_what_make_crds_writes():
    assert FILE.read_text(encoding="utf-8") == crd.text(), "run `make crds`"


def test_the_reference_is_what_make_crds_writes():
    page = FILE.parents[1] / "docs" / "reference.md"
    assert page.read_text(encoding="utf-8") == reference.page(SCHEMA), "run `make crds`"


def test_the_reference_has_every_field_that_is_not_as_in_a_podspec():
    fields = set(re.findall(r"^\| `([^`]+)`", reference.page(SCHEMA), re.MULTILINE))
    known = {path.strip(".") for path, _ in parts(SCHEMA) if path.startswith((".spec.", ".status."))}
    named = {path for path in known if not path.endswith("[]") and "affinity." not in path}
    sections = {path for path in named if path.count(".") == 1 and path not in fields}
    assert named - sections == {field.replace("{}", "[]") for field in fields}
    assert all(f"### {section}\n" in reference.page(SCHEMA) for section in sections)


def test_it_is_small_enough_for_a_plain_kubectl_apply():
    # kubectl keeps a copy in an annotation, which holds 256 KiB.
    assert FILE.stat().st_size < 100 * 1024
    assert len(json.dumps(DEFINITION)) < 100 * 1024


def test_kubectl_finds_it_by_its_short_name_and_among_all():
    named = DEFINITION["spec"]["names"]
    assert (named["shortNames"], named["categories"]) == (["njs"], ["all"])


def test_it_scales_and_says_which_pods_an_autoscaler_counts():
    assert VERSION["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_what_most_people_look_at_stands_in_the_first_columns():
    columns = VERSION["additionalPrinterColumns"]
    first = [column["name"] for column in columns if column["priority"] == 0]
    assert first == ["Ready", "Gamma", "Draft on GPU", "Replicas", "URL", "Age"]
    assert len(columns) > len(first)


@pytest.mark.parametrize("column", VERSION["additionalPrinterColumns"], ids=lambda column: column["name"])
def test_every_column_shows_a_field_that_exists(column):
    part = SCHEMA
    for key in column["jsonPath"].split("[")[0].strip(".").split("."):
        if part is SCHEMA["properties"]["metadata"]:
            return
        part = part["properties"][key]
    if "[" in column["jsonPath"]:
        assert column["jsonPath"].rpartition(".")[2] in part["items"]["properties"]


def test_conditions_are_merged_by_type_and_say_which_generation_they_are_about():
    status = SCHEMA["properties"]["status"]["properties"]
    conditions = status["conditions"]
    assert (conditions["x-kubernetes-list-type"], conditions["x-kubernetes-list-map-keys"]) == ("map", ["type"])
    required = set(conditions["items"]["required"])
    assert required == {"type", "status", "reason", "message", "lastTransitionTime", "observedGeneration"}
    assert status["observedGeneration"]["type"] == "integer"


def test_the_schema_is_structural():
    for path, part in parts(SCHEMA):
        assert "type" in part or part.get("x-kubernetes-int-or-string"), path
        assert not {"$ref", "title", "allOf", "oneOf"} & part.keys(), path
        assert part.get("additionalProperties", {}) is not False, path


def test_every_list_text_and_map_is_bounded_so_that_rules_have_a_price():
    for path, part in parts(structural(NightjarServiceSpec)):
        if part.get("type") == "array":
            assert "maxItems" in part, path
        if part.get("type") == "string" and "enum" not in part and "pattern" not in part:
            assert "maxLength" in part, path
        if isinstance(part.get("additionalProperties"), dict):
            assert "maxProperties" in part, path


def test_the_name_is_bounded_as_the_model_bounds_it():
    name = Metadata.model_json_schema()["properties"]["name"]
    assert SCHEMA["properties"]["metadata"]["properties"]["name"] == {
        "type": "string",
        "pattern": name["pattern"],
        "maxLength": name["maxLength"],
    }
    assert name["pattern"] == names.SERVICE_PATTERN


@pytest.mark.parametrize("path", ["target", "draft", "engine", "planner", "memory", "cache", "autoscaling", "rollout"])
def test_kubectl_explain_has_something_to_say(path):
    part = SCHEMA["properties"]["spec"]["properties"][path]
    assert part["description"].endswith(".")


def test_the_page_about_the_operator_names_every_part_of_the_spec():
    page = (FILE.parents[1] / "docs" / "operator.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\| part of `spec` .*\n\|.*\n((?:\|.*\n)+)", page)
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert named == set(SCHEMA["properties"]["spec"]["properties"])
