"""The NightjarService document: what is accepted, and how everything else is refused."""

import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api import durations, service
from nightjar_api.errors import ConfigurationError

ROOT = Path(__file__).parents[2]

MINIMAL = {
    "apiVersion": "nightjar.dev/v1alpha1",
    "kind": "NightjarService",
    "metadata": {"name": "story"},
    "spec": {"target": {"source": {"path": "/models/target"}}},
}
WITH_DRAFT = {**MINIMAL, "spec": {**MINIMAL["spec"], "draft": {"source": {"path": "/models/draft"}}}}


@pytest.fixture
def load(tmp_path):
    def load(document):
        file = tmp_path / "njs.yaml"
        file.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return service.load(file)

    return load


def with_field(document, path, value):
    """A copy of `document` with `spec.a.b` (a list of keys) set to `value`."""
    changed = copy.deepcopy(document)
    part = changed
    *parents, last = path.split(".")
    for key in parents:
        part = part.setdefault(key, {})
    part[last] = value
    return changed


def test_the_shortest_document_serves_one_model_without_speculation(load):
    found = load(MINIMAL)
    assert found.spec.draft is None
    assert found.spec.target.source.path == "/models/target"


def test_the_example_is_a_good_document():
    found = service.load(ROOT / "examples" / "nightjarservice.yaml")
    assert found.spec.draft is not None


def test_every_field_can_be_written_in_camel_case(load):
    found = load(
        with_field(
            with_field(WITH_DRAFT, "spec.target.maxModelLen", 4096),
            "spec.planner",
            {"policy": "fixed", "gammaMax": 2, "fixedGamma": 1, "switchCost": "12ms", "planTtl": "500ms"},
        )
    )
    assert found.spec.target.max_model_len == 4096
    assert found.spec.planner.fixed_gamma == 1


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("apiVersion", "nightjar.dev/v2"),
        ("kind", "Deployment"),
        ("metadata.name", "Story"),
        ("metadata.name", "story-"),
        ("metadata.name", "s" * 64),
        ("metadata.name", "7b"),
        ("spec.target.source.path", ""),
        ("spec.target.source", {}),
        ("spec.target.source", {"path": "/t", "uri": "s3://b/t"}),
        ("spec.target.servedName", ""),
        ("spec.target.dtype", "int8"),
        ("spec.target.maxModelLen", 15),
        ("spec.target.maxModelLen", "4096"),
        ("spec.target.max_model_len", 4096),
        ("spec.draft.numSpeculativeTokens", 0),
        ("spec.draft.numSpeculativeTokens", 17),
        ("spec.draft.numSpeculativeTokens", True),
        ("spec.draft.tokens", 3),
        ("spec.engine.port", 0),
        ("spec.engine.port", 65536),
        ("spec.engine.args", "--enforce-eager"),
        ("spec.engine.env", {"VLLM_CPU_KVCACHE_SPACE": 1}),
        ("spec.engine.catchUpTokens", 15),
        ("spec.engine.draftTiles", "tiles.json"),
        ("spec.planner.policy", "greedy"),
        ("spec.planner.gammaMax", -1),
        ("spec.planner.gammaMax", 17),
        ("spec.planner.gammaMax", 1.5),
        ("spec.planner.fixedGamma", -1),
        ("spec.planner.switchCost", "fast"),
        ("spec.planner.switchCost", 12),
        ("spec.planner.planTtl", "2"),
        ("spec.planner.planTtl", "0s"),
        ("spec.planner.planTtl", "2h"),
        ("spec.planner.buckets", []),
        ("spec.planner.buckets", list(range(1, 66))),
        ("spec.fallback.gamma", 17),
        ("spec.replica", 3),
        ("spec.replicas", -1),
        ("spec.engine.args", ["--seed", "1", "--port=1"]),
        ("spec.engine.env", {"A=B": "1"}),
        ("spec.engine.resources.limits", {"nvidia.com/gpu": 2}),
        ("spec.draft.source", None),
    ],
)
def test_a_bad_field_is_refused_with_its_path(load, tmp_path, path, value):
    with pytest.raises(ConfigurationError) as caught:
        load(with_field(WITH_DRAFT, path, value))
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path / 'njs.yaml'}: {path}")


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (
            "spec.planner.gammaMax",
            4,
            "planner.gammaMax: at most draft.numSpeculativeTokens is required, found 4; lower it",
        ),
        ("spec.planner", {"policy": "fixed", "fixedGamma": 5}, "planner.fixedGamma: at most"),
        ("spec.fallback.gamma", 4, "fallback.gamma: at most"),
        ("spec.engine.tensorParallelSize", 2, "engine.tensorParallelSize: 1 beside a draft of method draft-model is"),
        ("spec.planner.buckets", [1, 4, 4], "spec.planner.buckets: a list of growing upper bounds"),
        ("spec.planner.buckets", [0, 1], "spec.planner.buckets.0: "),
        ("spec.engine.args", ["--max_model_len=5"], "--max_model_len=5, which spec.target.maxModelLen decides"),
        (
            "spec.engine.args",
            ["--seed", "1", "--enable-lora", "--pipeline-parallel-size=2", "--no-async-scheduling"],
            "are required, found ['--enable-lora', '--pipeline-parallel-size=2', '--no-async-scheduling']; remove",
        ),
        (
            "spec",
            WITH_DRAFT["spec"] | {"engine": {"args": ["--enable-sleep-mode"]}, "memory": {"elastic": True}},
            "engine.args: flags that go with elastic memory are required, found ['--enable-sleep-mode']; remove them,",
        ),
        ("spec.planner.policy", False, '"off" in quotes is required'),
        ("spec.planner.policy", "static-table", "a table for the policy static-table is required"),
        ("spec.planner", {"policy": "static-table", "table": [[1, 8, 4]]}, "planner.table: lengths of at most draft"),
        ("spec.planner.table", [[2, 8, 1]], "table: growing ranges from 1 that do not overlap"),
    ],
)
def test_fields_that_do_not_fit_together_are_refused_with_what_to_do(load, path, value, named):
    with pytest.raises(ConfigurationError) as caught:
        load(with_field(WITH_DRAFT, path, value))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_kubernetes_adds_to_a_documents_metadata_passes(load):
    found = load({**MINIMAL, "metadata": {"name": "story", "namespace": "prod", "labels": {"team": "a"}}})
    assert found.metadata.namespace == "prod"


def test_an_object_of_the_api_server_is_read_without_its_status():
    found = service.from_object({**MINIMAL, "status": {"conditions": []}})
    assert found == service.NightjarService.model_validate(MINIMAL)


def test_an_object_of_the_api_server_that_is_wrong_is_refused_with_its_name():
    with pytest.raises(ConfigurationError, match=r"^NightjarService story: spec\.replicas: "):
        service.from_object(with_field(MINIMAL, "spec.replicas", -1))


@pytest.mark.parametrize("missing", ["apiVersion", "kind", "metadata", "spec"])
def test_a_missing_part_is_named(load, missing):
    with pytest.raises(ConfigurationError, match=rf": {missing}: required, found nothing$"):
        load({key: value for key, value in MINIMAL.items() if key != missing})


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n", "a: [\n", "a: 1\n---\nb: 2\n"])
def test_what_is_no_document_is_refused_with_the_file(load, tmp_path, text):
    with pytest.raises(ConfigurationError, match=r"njs\.yaml: "):
        load(text)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    file = tmp_path / "njs.yaml"
    file.write_bytes(b"kind: \xff\xfe\n")
    with pytest.raises(ConfigurationError, match="YAML in UTF-8 is required"):
        service.load(file)


def test_a_missing_file_is_refused_with_its_name(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere\.yaml: a readable .*No such file"):
        service.load(tmp_path / "nowhere.yaml")


def test_all_problems_are_reported_at_once(load):
    document = with_field(with_field(WITH_DRAFT, "spec.engine.port", 0), "spec.target.dtype", "int8")
    with pytest.raises(ConfigurationError) as caught:
        load(document)
    assert len(str(caught.value).splitlines()) == 2


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@given(st.integers(0, 999_999_999), st.sampled_from(sorted(UNITS)))
def test_whole_durations_are_read_exactly(number, unit):
    assert durations.seconds(f"{number}{unit}") == number * UNITS[unit]


@given(st.integers(0, 999_999), st.integers(0, 999), st.sampled_from(sorted(UNITS)))
def test_fractions_of_durations_are_read(whole, thousandths, unit):
    expected = (whole + thousandths / 1000) * UNITS[unit]
    assert durations.seconds(f"{whole}.{thousandths:03}{unit}") == pytest.approx(expected)


@given(st.from_regex(durations.PATTERN, fullmatch=True))
def test_the_published_pattern_is_what_is_accepted(text):
    assert 0 <= durations.seconds(text) < float("inf")


@given(st.text(max_size=12).filter(lambda text: not text.endswith(("s", "m", "h"))))
def test_other_texts_are_refused_with_what_is_required_and_what_was_found(text):
    with pytest.raises(ValueError, match=r"a duration like 12ms, 1\.5s or 2m is required") as caught:
        durations.seconds(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["12", "ms", "-1s", "+1s", "1 s", "1S", "01s", "1e3s", ".5s", "1.s", "12ms\n", "9" * 10 + "s"]
)
def test_near_misses_of_durations_are_refused(text):
    with pytest.raises(ValueError, match="a duration like"):
        durations.seconds(text)
