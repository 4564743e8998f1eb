"""The sidecar's settings file: what is written is what is read, and nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api import settings
from nightjar_api.errors import ConfigurationError
from nightjar_api.memory import MemorySpec
from nightjar_api.service import PlannerSpec

planners = st.builds(
    PlannerSpec,
    policy=st.sampled_from(["nightjar", "ada-bingreedy", "fixed", "off"]),
    gamma_max=st.none() | st.integers(0, 16),
    fixed_gamma=st.integers(0, 16),
    switch_cost=st.just("auto") | st.integers(0, 10_000).map("{}ms".format),
    buckets=st.sets(st.integers(1, 4096), min_size=1, max_size=64).map(sorted),
    plan_ttl=st.integers(10, 3_600_000).map("{}ms".format),
)
memories = st.builds(
    MemorySpec,
    elastic=st.booleans(),
    tau_low=st.integers(0, 10_000) | st.integers(0, 100).map("{}%".format),
    persist_steps=st.integers(1, 100),
    dwell=st.integers(0, 3600).map("{}s".format),
)


@given(planners, memories, st.text(min_size=1, max_size=20))
def test_what_is_written_is_read_back(tmp_path_factory, planner, memory, revision):
    file = tmp_path_factory.mktemp("settings") / "settings.json"
    written = settings.SidecarSettings(revision=revision, planner=planner, memory=memory)
    file.write_text(settings.dump(written), encoding="utf-8")
    assert settings.load(file) == written


def test_an_older_sidecar_reads_the_file_of_a_newer_operator_until_a_new_field_is_used():
    written = settings.SidecarSettings(revision="a", planner=PlannerSpec(gamma_max=1))
    assert json.loads(settings.dump(written)) == {"revision": "a", "planner": {"gammaMax": 1}}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "Invalid JSON"),
        ("{", "Invalid JSON"),
        ("[]", "document"),
        ("{}", "revision: required, found nothing"),
        ('{"revision": "a", "planner": {"gammaMax": 17}}', "planner.gammaMax: "),
        ('{"revision": "a", "planner": {"gamma_max": 1}}', "planner.gamma_max: "),
        ('{"revision": "a", "plan": {}}', "plan: "),
        ('{"revision": 1}', "revision: "),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_name_and_the_field(tmp_path, text, named):
    file = tmp_path / "settings.json"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        settings.load(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert named in str(caught.value)


def test_a_missing_file_is_refused_with_its_name(tmp_path):
    with pytest.raises(ConfigurationError, match=r"settings\.json: a readable settings file is required: No such"):
        settings.load(tmp_path / "settings.json")


def test_a_file_that_is_not_utf_8_is_refused(tmp_path):
    file = tmp_path / "settings.json"
    file.write_bytes(b'{"revision": "\xff"}')
    with pytest.raises(ConfigurationError, match="JSON in UTF-8 is required"):
        settings.load(file)
