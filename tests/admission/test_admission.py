"""What the optional webhook says about documents that the definition's rules let pass."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_api.sources import HubSource, ModelSource
from nightjar_operator.admission import Verdict, _parameters, review

GIB = 2**30
BASE = {
    "apiVersion": "nightjar.dev/v1alpha1",
    "kind": "NightjarService",
    "metadata": {"name": "story", "uid": "u", "resourceVersion": "1"},
    "spec": {
        "target": {"source": {"hub": {"id": "organisation/Model-7B-Instruct"}}},
        "draft": {"source": {"hub": {"id": "organisation/Model-0.5B"}}},
    },
    "status": {"replicas": 1},
}


def with_spec(**parts):
    changed = copy.deepcopy(BASE)
    changed["spec"] |= parts
    return changed


def test_a_document_with_nothing_wrong_passes_without_a_word():
    assert review(BASE, None, 80 * GIB) == Verdict()
    assert review(BASE, BASE, None) == Verdict()


def test_what_the_model_refuses_is_refused_line_by_line():
    verdict = review(with_spec(replicas=-1, target={"source": {}}), None, None)
    assert len(verdict.refusals) == 2
    assert all("spec." in line for line in verdict.refusals)


def test_a_path_that_no_pod_could_find_is_refused():
    (line,) = review(with_spec(target={"source": {"path": "out/model"}}), None, None).refusals
    assert line.startswith("spec.target.source.path: an absolute path is required")


CLAIM = {"size": "10Gi", "storageClassName": "fast", "accessMode": "ReadWriteMany"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"size": "9Gi"}, "size"),
        ({"storageClassName": "slow"}, "storageClassName"),
        ({"storageClassName": None}, "storageClassName"),
        ({"accessMode": "ReadWriteOnce"}, "accessMode"),
    ],
)
def test_a_claim_that_cannot_follow_a_change_is_refused_with_what_to_do(change, field):
    verdict = review(with_spec(cache={**CLAIM, **change}), with_spec(cache=CLAIM), None)
    (line,) = verdict.refusals
    assert line.startswith(f"spec.cache.{field}: ")
    assert "name it with claimName" in line


@pytest.mark.parametrize("cache", [{**CLAIM, "size": "11Gi"}, {"claimName": "mine"}, None])
def test_a_claim_may_grow_or_be_left(cache):
    assert review(with_spec(cache=cache), with_spec(cache=CLAIM), None).refusals == ()


def test_an_object_of_older_rules_may_become_a_right_one():
    assert review(BASE, {"spec": {"gone": 1}}, None).refusals == ()


@pytest.mark.parametrize(
    ("parts", "gib", "is_too_large"),
    [
        ({}, 16, False),
        ({}, 15, True),
        ({"draft": {"method": "ngram"}, "engine": {"tensorParallelSize": 2}}, 8, False),
        ({"engine": {"device": "cpu"}}, 1, False),
        ({"target": {"source": {"hub": {"id": "o/Model-70B"}}}}, 80, True),
        ({"target": {"source": {"hub": {"id": "o/Model-70B-AWQ"}}}}, 80, False),
        ({"target": {"source": {"path": "/models/Model-7B"}, "dtype": "float32"}}, 24, True),
        ({"target": {"source": {"hub": {"id": "o/some-model"}}}}, 1, True),
        ({"target": {"source": {"hub": {"id": "o/some-model"}}}}, 2, False),
    ],
)
def test_models_that_by_their_names_do_not_fit_a_gpu_are_warned_of(parts, gib, is_too_large):
    verdict = review(with_spec(**parts), None, gib * GIB)
    assert verdict.refusals == ()
    assert any("tensorParallelSize" in line for line in verdict.warnings) == is_too_large


def test_models_that_cannot_be_shared_among_gpus_are_not_told_to():
    (planned,) = review(with_spec(), None, 8 * GIB).warnings
    (unplanned,) = review(with_spec(draft={"method": "ngram"}), None, 8 * GIB).warnings
    assert planned.endswith("on each of 1 GPUs, and one offers 7 GiB; take smaller ones, or a service without a draft")
    assert unplanned.endswith("share them among more GPUs")


def test_an_unknown_gpu_is_no_reason_to_warn():
    assert review(with_spec(target={"source": {"hub": {"id": "o/Model-400B"}}}), None, None) == Verdict()


@pytest.mark.parametrize(
    ("parts", "short"),
    [
        # 1e9 bytes of weights.
        ({"limits": {"memory": "1000M"}}, []),
        ({"limits": {"memory": "999M"}}, ["limits"]),
        ({"requests": {"memory": "512Mi"}, "limits": {"memory": "8Gi"}}, ["requests"]),
        ({"requests": {"memory": 5}, "limits": {"memory": 6}}, ["limits", "requests"]),
        ({"requests": {"cpu": 1}}, []),
        ({}, []),
    ],
)
def test_an_engine_without_room_for_the_copy_of_the_drafts_weights_is_warned_of(parts, short):
    elastic = {"memory": {"elastic": True}, "engine": {"resources": parts}}
    verdict = review(with_spec(**elastic), None, None)
    assert verdict.refusals == ()
    assert [line.split(":")[0] for line in verdict.warnings] == [
        f"spec.engine.resources.{kind}.memory" for kind in short
    ]
    assert all("takes 0.931 GiB of the host's memory" in line for line in verdict.warnings)
    for other in ({"memory": {}}, {"engine": {"device": "cpu", "resources": parts}}):
        assert review(with_spec(**(elastic | other)), None, None).warnings == ()


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("o/M-8x7B", 56),
        ("o/M-0.5B", 0.5),
        ("o/M-135M", 0.135),
        ("7b", 7),
        ("o/M-7B-v2", 7),
        ("o/M", None),
        ("o/M-1.5B-from-7B", None),
        ("o/A3B", None),
        ("o/M-7B-GPTQ", None),
    ],
)
def test_a_models_name_tells_its_size_or_nothing(name, billions):
    found = _parameters(ModelSource(hub=HubSource(id=name)))
    assert found == (None if billions is None else pytest.approx(billions * 1e9))


@pytest.mark.parametrize(
    ("parts", "is_stuck"),
    [
        ({"disruption": {"maxUnavailable": 0}}, True),
        ({"disruption": {"minAvailable": 1}}, True),
        ({"disruption": {"minAvailable": 1}, "replicas": 2}, False),
        ({"disruption": {"maxUnavailable": 1}}, False),
        ({"disruption": {"minAvailable": 1}, "autoscaling": {"maxReplicas": 2}}, False),
    ],
)
def test_a_budget_that_keeps_nodes_from_being_drained_is_warned_of(parts, is_stuck):
    assert any("drained" in line for line in review(with_spec(**parts), None, None).warnings) == is_stuck


def test_fields_without_effect_are_warned_of():
    verdict = review(with_spec(draft={"method": "ngram"}, planner={"gammaMax": 1}), None, None)
    assert verdict.warnings == ("spec.planner: no effect, vLLM serves ngram with a fixed length",)


@given(
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=8)
)
def test_whatever_arrives_is_answered(spec):
    assert review({**BASE, "spec": spec}, None, None).refusals
