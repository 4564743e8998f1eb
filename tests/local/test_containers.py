"""The pure part: NightjarService -> containers, and what a changed document needs."""

import json
from pathlib import PurePosixPath

import pytest
from pydantic import ValidationError

from nightjar_operator import changes, pod

LAYOUT = pod.Layout(
    PurePosixPath("/run/nightjar/engine.sock"), PurePosixPath("/etc/nightjar/settings.json"), 9001, drain_seconds=45
)


def value(command, flag):
    return command[command.index(flag) + 1]


def test_the_engine_serves_the_target_under_the_services_name_on_loopback(make_service):
    service = make_service()
    command = pod.build(service, LAYOUT).engine.command
    assert command[:3] == ("vllm", "serve", service.spec.target.source.path)
    assert value(command, "--host") == "127.0.0.1"
    assert value(command, "--port") == str(service.spec.engine.port)
    assert value(command, "--served-model-name") == "story"
    assert value(command, "--shutdown-timeout") == "45"
    assert "--max-model-len" not in command


def test_the_engine_gets_the_targets_fields(make_service):
    source = {"path": "/models/big"}
    service = make_service(target={"source": source, "servedName": "big", "dtype": "bfloat16", "maxModelLen": 4096})
    command = pod.build(service, LAYOUT).engine.command
    assert value(command, "--served-model-name") == "big"
    assert value(command, "--dtype") == "bfloat16"
    assert value(command, "--max-model-len") == "4096"


def test_a_draft_configures_speculation_and_the_plugin(make_service):
    service = make_service(engine={"catchUpTokens": 64}, fallback={"gamma": 2})
    command = pod.build(service, LAYOUT).engine.command
    assert json.loads(value(command, "--speculative-config")) == {
        "method": "draft_model",
        "model": service.spec.draft.source.path,
        "num_speculative_tokens": 3,
    }
    assert json.loads(value(command, "--additional-config")) == {
        "nightjar": {"socket": "/run/nightjar/engine.sock", "fallback_gamma": 2, "catch_up_tokens": 64}
    }


def test_without_a_draft_there_is_neither_plugin_nor_sidecar(make_service):
    built = pod.build(make_service(draft=False), LAYOUT)
    assert built.sidecar is None
    assert built.settings is None
    assert "--additional-config" not in built.engine.command
    assert "--speculative-config" not in built.engine.command


def test_the_sidecar_gets_the_socket_its_settings_and_its_port(make_service):
    built = pod.build(make_service(), LAYOUT)
    assert built.sidecar.command == (
        *("nightjar", "sidecar", "--engine-socket", "/run/nightjar/engine.sock"),
        *("--settings", "/etc/nightjar/settings.json", "--host", "127.0.0.1", "--port", "9001"),
    )
    assert built.sidecar.readiness == pod.Probe(9001, "/readyz")


def test_the_documents_own_engine_arguments_come_last(make_service):
    built = pod.build(make_service(engine={"args": ["--enforce-eager", "--block-size", "16"]}), LAYOUT)
    assert built.engine.command[-3:] == ("--enforce-eager", "--block-size", "16")


@pytest.mark.parametrize(
    "argument",
    ["--port", "--port=1", "--max_model_len", "--speculative-config.model", "-sc", "--spec", "--additional-config={}"],
)
def test_engine_arguments_that_contradict_the_document_are_refused(make_service, argument):
    with pytest.raises(ValidationError, match=rf"are required, found \['{argument}, which spec.*remove them here"):
        make_service(engine={"args": ["--enforce-eager", argument]})


def test_values_of_engine_arguments_are_not_mistaken_for_flags(make_service):
    args = ["--block-size", "16", "--seed", "-1", "--", "-"]
    assert pod.build(make_service(engine={"args": args}), LAYOUT).engine.command[-6:] == tuple(args)


def test_the_revision_follows_planner_and_memory_and_nothing_else(make_service):
    one = make_service()
    assert pod.revision(one) == pod.revision(make_service(engine={"args": ["--enforce-eager"]}))
    assert pod.revision(one) != pod.revision(make_service(planner={"gammaMax": 1}))
    assert pod.revision(one) != pod.revision(make_service(memory={"persistSteps": 4}))


def test_changed_fields_are_named_as_people_write_them(make_service):
    old = make_service(planner={"gammaMax": 2})
    new = make_service(planner={"gammaMax": 3}, target={"source": {"path": "/models/other"}})
    found = changes.changed(old, new)
    assert found == ["spec.planner.gammaMax", "spec.target.source.path"]
    assert changes.needing_restart(found) == ["spec.target.source.path"]


def test_planner_and_memory_reach_a_running_pod(make_service):
    new = make_service(planner={"switchCost": "12ms"}, memory={"dwell": "1m"})
    found = changes.changed(make_service(), new)
    assert found == ["spec.memory.dwell", "spec.planner.switchCost"]
    assert changes.needing_restart(found) == []


def test_an_engine_is_started_with_elastic_memory_or_without(make_service):
    old, new = make_service(), make_service(memory={"elastic": True, "dwell": "1m"})
    assert changes.needing_restart(changes.changed(old, new)) == ["spec.memory.elastic"]
    settings = [json.loads(argument_of(pod.build(one, LAYOUT), "--additional-config")) for one in (old, new)]
    assert "elastic" not in settings[0]["nightjar"]
    assert settings[1]["nightjar"]["elastic"] is True


def argument_of(built, name):
    return built.engine.command[built.engine.command.index(name) + 1]


def test_a_removed_draft_needs_a_restart(make_service):
    found = changes.changed(make_service(), make_service(draft=False))
    assert changes.needing_restart(found) == ["spec.draft"]


def test_equal_documents_differ_in_nothing(make_service):
    assert changes.changed(make_service(), make_service()) == []
