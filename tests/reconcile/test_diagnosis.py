"""Facts about a service become conditions."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightjar_operator.diagnosis import Facts, Problem, conditions
from nightjar_operator.pods import Trouble
from nightjar_operator.reports import Silence

TYPES = ["Accepted", "Ready", "RolledOut", "Adaptive", "SettingsSynced", "InsufficientGPU", "ModelUnavailable"]
NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


def answers(facts):
    return {one.type: (one.status, one.reason) for one in conditions(facts)}


def message(facts, kind):
    return next(one.message for one in conditions(facts) if one.type == kind)


def test_all_is_well(make_facts):
    assert answers(make_facts()) == {
        "Accepted": ("True", "Applied"),
        "Ready": ("True", "Serving"),
        "RolledOut": ("True", "Complete"),
        "Adaptive": ("True", "Planning"),
        "SettingsSynced": ("True", "Synced"),
        "InsufficientGPU": ("False", "NonePending"),
        "ModelUnavailable": ("False", "NoneLacking"),
    }


def test_serving_goes_on_while_a_rollout_is_under_way(make_facts):
    status = {"observedGeneration": 4, "replicas": 2, "updatedReplicas": 1, "readyReplicas": 1}
    found = make_facts(deployment={"generation": 4, "replicas": 2, "status": status})
    assert answers(found)["Ready"] == ("True", "Serving")
    assert answers(found)["RolledOut"] == ("False", "RollingOut")


def test_a_template_that_the_deployment_has_not_seen_is_not_rolled_out(make_facts):
    status = {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}
    found = make_facts(deployment={"generation": 4, "replicas": 2, "status": status})
    assert answers(found)["RolledOut"] == ("False", "RollingOut")


def test_a_rollout_past_its_deadline_is_stalled(make_facts):
    progressing = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    status = {"observedGeneration": 4, "replicas": 2, "updatedReplicas": 1, "conditions": [progressing]}
    found = make_facts(deployment={"generation": 4, "replicas": 2, "status": status})
    assert answers(found)["RolledOut"] == ("False", "Stalled")


def test_a_spec_that_is_refused_leaves_what_serves_alone(make_facts):
    found = make_facts(problem=Problem("InvalidSpec", "spec.engine.args.0: …"), policy=None, revision=None)
    assert answers(found) | {"Ready": ("True", "Serving")} == answers(found)
    assert answers(found)["Accepted"] == ("False", "InvalidSpec")
    assert answers(found)["RolledOut"] == ("False", "InvalidSpec")
    assert answers(found)["Adaptive"] == ("Unknown", "InvalidSpec")
    assert message(found, "Accepted") == "spec.engine.args.0: …"


def test_pods_that_crash_are_not_ready_with_their_last_words(make_facts, make_pod):
    crashed = make_pod(ready=False, troubles=(Trouble("engine", "Error", "CUDA out of memory"),))
    found = make_facts(pods=(crashed,))
    assert answers(found)["Ready"] == ("False", "Error")
    assert "CUDA out of memory" in message(found, "Ready")


def test_no_pods_wanted_is_said_so(make_facts):
    deployment = {"generation": 4, "replicas": 0, "status": {"observedGeneration": 4}}
    found = dataclasses.replace(make_facts(deployment=deployment), pods=())
    assert answers(found)["Ready"] == ("False", "ScaledToZero")
    assert answers(found)["RolledOut"] == ("True", "Complete")


def test_lacking_gpus_are_told_from_other_reasons_not_to_be_scheduled(make_facts, make_pod):
    waiting = make_facts(pods=(make_pod(ready=False, unschedulable=NO_GPU),))
    tainted = make_facts(pods=(make_pod(ready=False, unschedulable="0/3 nodes: 3 had untolerated taint"),))
    assert answers(waiting)["InsufficientGPU"] == ("True", "Unschedulable")
    assert NO_GPU in message(waiting, "InsufficientGPU")
    assert answers(tainted)["InsufficientGPU"] == ("False", "NonePending")
    assert answers(tainted)["Ready"] == ("False", "Unschedulable")


@pytest.mark.parametrize(
    "words",
    [
        "OSError: acme/large is not a local folder and is not a valid model identifier",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error",
        'secret "hub" not found',
        "FileNotFoundError: [Errno 2] No such file or directory: '/models/large/config.json'",
        'FileNotFoundError: No such file or directory: "/models/large/model-00001-of-00002.safetensors"',
        "FileNotFoundError: [Errno 2] No such file or directory: 'tokenizer.json'",
        "Exception: No such file or directory (os error 2)",
    ],
)
def test_a_model_that_cannot_be_had_is_named(make_facts, make_pod, words):
    found = make_facts(pods=(make_pod(ready=False, troubles=(Trouble("engine", "Error", words),)),))
    assert answers(found)["ModelUnavailable"] == ("True", "NotLoaded")
    assert words in message(found, "ModelUnavailable")


@pytest.mark.parametrize(
    "words",
    [
        "ImportError: libcudart.so.13: cannot open shared object file: No such file or directory",
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/lib/libnuma.so.1'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'nvcc'",
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
    ],
)
def test_an_engine_without_a_library_or_a_program_misses_no_model(make_facts, make_pod, words):
    found = make_facts(pods=(make_pod(ready=False, troubles=(Trouble("engine", "Error", words),)),))
    assert answers(found)["ModelUnavailable"] == ("False", "NoneLacking")
    assert answers(found)["Ready"] == ("False", "Error")
    assert words in message(found, "Ready")


def test_a_sidecar_that_misses_a_file_misses_no_model(make_facts, make_pod):
    trouble = Trouble("sidecar", "Error", "the engine is away: connect failed: No such file or directory")
    found = make_facts(pods=(make_pod(ready=False, troubles=(trouble,)),))
    assert answers(found)["ModelUnavailable"] == ("False", "NoneLacking")
    assert answers(found)["Ready"] == ("False", "Error")


def test_a_claim_that_is_not_there_is_a_model_that_cannot_be_had(make_facts, make_pod):
    found = make_facts(pods=(make_pod(ready=False, unschedulable='persistentvolumeclaim "models" not found'),))
    assert answers(found)["ModelUnavailable"][0] == "True"


@pytest.mark.parametrize("policy", ["off", "fixed"])
def test_a_pinned_length_is_not_adaptive(make_facts, policy):
    assert answers(make_facts(policy=policy))["Adaptive"] == ("False", "LengthPinned")


def test_nothing_to_plan_is_in_step_and_says_why(make_facts):
    found = make_facts(policy=None, revision=None, unplanned="the service has no draft", reports={})
    assert answers(found)["Adaptive"] == ("False", "NothingToPlan")
    assert answers(found)["SettingsSynced"] == ("True", "NothingToPlan")
    assert message(found, "Adaptive") == "the service has no draft"


def test_one_silent_sidecar_is_not_in_control(make_facts, make_pod, make_report):
    pods = (make_pod(), make_pod())
    found = make_facts(pods=pods, reports={pods[0].uid: make_report(), pods[1].uid: Silence("refused")})
    assert answers(found)["Adaptive"] == ("False", "SidecarSilent")
    assert pods[1].name in message(found, "Adaptive")
    assert answers(found)["Ready"] == ("True", "Serving")


def test_a_sidecar_that_does_not_plan_says_why(make_facts, make_pod, make_report):
    pod = make_pod()
    found = make_facts(pods=(pod,), reports={pod.uid: make_report(unready="the engine is away")})
    assert answers(found)["Adaptive"] == ("False", "NotPlanning")
    assert "the engine is away" in message(found, "Adaptive")


def test_pods_that_obey_older_settings_are_counted(make_facts, make_pod, make_report):
    pods = (make_pod(), make_pod())
    found = make_facts(pods=pods, reports={pods[0].uid: make_report(), pods[1].uid: make_report(revision="old")})
    assert answers(found)["SettingsSynced"] == ("False", "Propagating")
    assert "1 of 2 pods" in message(found, "SettingsSynced")


def test_settings_that_a_sidecar_refuses_are_shown(make_facts, make_pod, make_report):
    pod = make_pod()
    found = make_facts(pods=(pod,), reports={pod.uid: make_report(revision="old", refused="gammaMax: at most 3")})
    assert answers(found)["SettingsSynced"] == ("False", "Refused")
    assert "gammaMax: at most 3" in message(found, "SettingsSynced")


@given(
    policy=st.sampled_from([None, "nightjar", "off"]),
    revision=st.sampled_from([None, "new"]),
    problem=st.sampled_from([None, Problem("InvalidSpec", "…")]),
    deployment=st.sampled_from([None, {"generation": 1, "replicas": 1, "status": {}}]),
)
def test_every_condition_is_answered_in_every_situation(policy, revision, problem, deployment):
    found = conditions(Facts(1, problem, policy, revision=revision, deployment=deployment))
    assert [one.type for one in found] == TYPES
    assert all(one.reason.isalnum() and one.reason[0].isupper() for one in found)
