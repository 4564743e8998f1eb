"""LocalPod with doubles for vLLM and the sidecar; every process and every signal is real."""

import json
import os
import signal
import socket
import stat
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from nightjar_api.errors import ConfigurationError
from nightjar_operator.errors import EngineExitedError, NotReadyError
from nightjar_operator.local.keeper import restart_delay
from nightjar_operator.local.pod import Deadlines, LocalPod
from nightjar_operator.local.readiness import split_log
from nightjar_operator.pod import revision

# On a busy machine a program may take long to start, and everything else, too.
PATIENT = Deadlines(engine_ready=300, sidecar_ready=300, settings=300, drain=300, exit=300)


class Events(list):
    """Collects events and lets a test wait for the next of a kind."""

    def __init__(self):
        super().__init__()
        self._arrived = threading.Condition()

    def __call__(self, event):
        with self._arrived:
            self.append(event)
            self._arrived.notify_all()

    def of(self, kind):
        return [event.message for event in self if event.kind == kind]

    def wait_for(self, kind, seconds=300):
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.of(kind), seconds), f"no {kind} event in {list(self)}"
            return self.of(kind)


@pytest.fixture
def events():
    return Events()


@pytest.fixture
def make_pod(doubles, tmp_path, events):
    def make(service, deadlines=PATIENT):
        return LocalPod(service, tmp_path / "work", on_event=events, run=doubles, deadlines=deadlines)

    return make


def state(pid):
    """As ps shows it; None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def is_running(pid):
    # A zombie whose parent is gone is reaped by init in its own time.
    return state(pid) not in (None, "Z")


def eventually(condition, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the deadline passed"
        time.sleep(0.02)


def get(url):
    return httpx.get(url, trust_env=False, timeout=300)


def sidecar_answers(pod):
    try:
        return get(pod.status_url).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_pod_serves_inside_the_block_and_is_gone_after_it(make_pod, make_service, events):
    service = make_service()
    with make_pod(service) as pod:
        assert pod.openai_url == f"http://127.0.0.1:{service.spec.engine.port}/v1"
        assert get(f"http://127.0.0.1:{service.spec.engine.port}/health").status_code == 200
        assert get(pod.status_url).json()["settings"]["revision"] == revision(service)
        pids = [pod.engine_pid, pod.sidecar_pid]
        assert all(is_running(pid) for pid in pids)
    assert not any(is_running(pid) for pid in pids)
    assert [event.kind for event in events if event.kind != "progress"] == [
        *("starting", "ready", "draining", "stopped")
    ]


def test_without_a_draft_there_is_no_sidecar_and_no_status_url(make_pod, make_service):
    with make_pod(make_service(draft=False)) as pod:
        assert pod.status_url is None
        assert pod.sidecar_pid is None
        assert not (pod.workdir / "settings.json").exists()


def test_the_socket_folder_is_private_and_removed(make_pod, make_service, tmp_path, monkeypatch):
    folder = tempfile.mkdtemp(prefix="nj-", dir="/tmp")
    monkeypatch.setattr(tempfile, "tempdir", folder)
    with make_pod(make_service()):
        (socket_folder,) = Path(folder).iterdir()
        assert stat.S_IMODE(socket_folder.stat().st_mode) == 0o700
    assert list(Path(folder).iterdir()) == []
    Path(folder).rmdir()


def test_a_socket_path_that_is_too_long_is_refused_before_anything_starts(
    make_pod, make_service, tmp_path, monkeypatch, events
):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(ConfigurationError, match=r"at most 107 bytes, found .*TMPDIR"), make_pod(make_service()):
        pass
    assert events == []
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize("offset", [0, 1])
def test_a_taken_port_is_said_before_anything_starts(make_pod, make_service, events, offset):
    service = make_service()
    taken = service.spec.engine.port + offset
    with socket.socket() as other:
        other.bind(("127.0.0.1", taken))
        other.listen()
        with pytest.raises(ConfigurationError, match=rf"found {taken}.*spec\.engine\.port"), make_pod(service):
            pass
    assert events == []


@pytest.mark.parametrize("part", ["target", "draft"])
def test_a_model_folder_that_is_missing_is_refused_with_its_field(make_pod, make_service, part, tmp_path):
    service = make_service(**{part: {"source": {"path": str(tmp_path / "nowhere")}}})
    with pytest.raises(ConfigurationError, match=rf"spec\.{part}\.source\.path: .*nowhere"), make_pod(service):
        pass


def test_an_engine_that_dies_at_start_up_shows_its_last_lines_and_leaves_nothing(
    make_pod, make_service, tmp_path, monkeypatch
):
    pids = tmp_path / "sidecar.pids"
    monkeypatch.setenv("SIDECAR_DOUBLE_PIDS", str(pids))
    service = make_service(engine={"env": {"ENGINE_DOUBLE_EXIT": "7"}})
    with pytest.raises(NotReadyError, match=r"(?s)exit code 7.*weights do not fit") as caught, make_pod(service):
        pass
    assert caught.value.exit_code == 7
    assert not any(is_running(int(pid)) for pid in (pids.read_text().split() if pids.exists() else []))


def test_an_engine_that_never_gets_ready_is_killed_with_its_children(doubles, make_service, tmp_path):
    pids = tmp_path / "pids"
    env = {"ENGINE_DOUBLE_HANGS": "1", "ENGINE_DOUBLE_PIDS": str(pids)}
    now = [0.0]

    def an_hour_passes_while_loading(event):
        if event.message == "loading forever":
            now[0] = 3600.0

    pod = LocalPod(
        make_service(engine={"env": env}),
        tmp_path / "work",
        on_event=an_hour_passes_while_loading,
        run=doubles,
        deadlines=Deadlines(engine_ready=1800, exit=0.2),
        clock=lambda: now[0],
    )
    with (
        pytest.raises(NotReadyError, match=r"(?s)/health is required to answer 200 within 1800 s.*loading forever"),
        pod,
    ):
        pass
    engine, child = (int(pid) for pid in pids.read_text().split())
    eventually(lambda: not is_running(engine) and not is_running(child))


def test_the_engines_children_do_not_outlive_the_pod(make_pod, make_service, tmp_path):
    pids = tmp_path / "pids"
    with make_pod(make_service(engine={"env": {"ENGINE_DOUBLE_PIDS": str(pids)}})):
        _, child = (int(pid) for pid in pids.read_text().split())
        assert is_running(child)
    eventually(lambda: not is_running(child))


def test_a_sidecar_that_cannot_start_fails_the_pod_with_its_last_lines(make_pod, make_service, monkeypatch):
    monkeypatch.setenv("SIDECAR_DOUBLE_EXIT", "3")
    with (
        # Or a little more often, where nobody looked for a while.
        pytest.raises(NotReadyError, match=r"(?s)sidecar exited [3-9] times.*no settings, no sidecar"),
        make_pod(make_service()),
    ):
        pass


def test_a_killed_sidecar_is_restarted_and_the_engine_goes_on(make_pod, make_service, events):
    with make_pod(make_service()) as pod:
        engine, first = pod.engine_pid, pod.sidecar_pid
        os.kill(first, signal.SIGKILL)
        (message,) = events.wait_for("sidecar-exited")
        assert "code -9" in message
        eventually(lambda: pod.sidecar_pid != first and sidecar_answers(pod))
        assert pod.engine_pid == engine
        pod.check()
        second = pod.sidecar_pid
    assert not is_running(second)


def test_a_dead_engine_is_reported_with_its_exit_code(make_pod, make_service):
    with make_pod(make_service()) as pod:
        os.kill(pod.engine_pid, signal.SIGKILL)
        with pytest.raises(
            EngineExitedError, match=r"(?s)while it served, exit code -9.*engine double serves"
        ) as caught:
            eventually(pod.check)
        assert caught.value.exit_code == -9


def test_a_request_in_flight_finishes_while_the_pod_drains(make_pod, make_service):
    service = make_service()
    with httpx.Client(trust_env=False, timeout=300) as client:
        with make_pod(service):
            request = client.build_request("POST", f"http://127.0.0.1:{service.spec.engine.port}/v1/completions")
            answer = client.send(request, stream=True)
        assert answer.read() == b"finished"
        answer.close()


def test_a_changed_planner_is_in_force_when_the_sidecar_says_so(make_pod, make_service, events):
    with make_pod(make_service()) as pod:
        before = get(pod.status_url).json()["settings"]
        pod.apply(make_service(planner={"gammaMax": 1, "policy": "ada-bingreedy"}))
        after = get(pod.status_url).json()["settings"]
    assert after["planner"]["gammaMax"] == 1
    assert after["revision"] != before["revision"]
    assert events.of("settings") == [
        f"spec.planner.gammaMax, spec.planner.policy: settings revision {after['revision']} is in force"
    ]


def test_settings_the_sidecar_refuses_are_said_to_be_refused(make_pod, make_service, events, monkeypatch):
    monkeypatch.setenv("SIDECAR_DOUBLE_REFUSES", "1")
    with make_pod(make_service()) as pod:
        pod.apply(make_service(planner={"gammaMax": 1}))
    assert events.of("settings") == ["spec.planner.gammaMax: refused by the sidecar, those in force stay: planner: no"]


def test_settings_nobody_confirms_are_said_to_be_written_only(make_pod, make_service, events):
    deadlines = replace(PATIENT, settings=0.3)
    with make_pod(make_service(), deadlines) as pod:
        os.kill(pod.sidecar_pid, signal.SIGSTOP)
        try:
            eventually(lambda: state(pod.sidecar_pid) == "T")
            pod.apply(make_service(planner={"gammaMax": 1}))
        finally:
            os.kill(pod.sidecar_pid, signal.SIGCONT)
    (message,) = events.of("settings")
    assert message.endswith("is written, the sidecar has not confirmed it yet")


def test_a_planner_without_a_draft_to_plan_for_has_no_effect(make_pod, make_service, events):
    with make_pod(make_service(draft=False)) as pod:
        pod.apply(make_service(draft=False, planner={"gammaMax": 1}))
    assert events.of("settings") == ["spec.planner.gammaMax: no effect, the service has no draft"]


def test_a_change_elsewhere_needs_a_restart_and_changes_nothing(make_pod, make_service, events):
    with make_pod(make_service()) as pod:
        before = (pod.workdir / "settings.json").read_text()
        pod.apply(make_service(planner={"gammaMax": 1}, engine={"args": ["--enforce-eager"]}))
        assert (pod.workdir / "settings.json").read_text() == before
    (message,) = events.of("restart-needed")
    assert "spec.engine.args" in message


def test_an_interrupt_while_starting_stops_everything(doubles, make_service, tmp_path):
    pids = tmp_path / "pids"
    env = {"ENGINE_DOUBLE_HANGS": "1", "ENGINE_DOUBLE_PIDS": str(pids)}

    def interrupt_when_loading(event):
        if event.message == "loading forever":
            raise KeyboardInterrupt

    pod = LocalPod(
        make_service(engine={"env": env}),
        tmp_path / "work",
        on_event=interrupt_when_loading,
        run=doubles,
        deadlines=Deadlines(engine_ready=300, exit=0.2),
    )
    with pytest.raises(KeyboardInterrupt), pod:
        pass
    engine, child = (int(pid) for pid in pids.read_text().split())
    eventually(lambda: not is_running(engine) and not is_running(child))


def test_a_second_interrupt_cuts_the_drain_short(doubles, make_service, tmp_path):
    seen = []

    def interrupt_when_draining(event):
        seen.append(event.kind)
        if event.kind == "draining":
            raise KeyboardInterrupt

    pod = LocalPod(make_service(), tmp_path / "work", on_event=interrupt_when_draining, run=doubles)
    pids = []
    with pytest.raises(KeyboardInterrupt), pod:
        pids = [pod.engine_pid, pod.sidecar_pid]
    assert "draining" in seen
    assert not any(is_running(pid) for pid in pids)


def test_logs_of_an_earlier_run_are_not_mistaken_for_this_one(make_pod, make_service, tmp_path):
    logs = tmp_path / "work" / "logs"
    logs.mkdir(parents=True)
    (logs / "engine.log").write_text("an old story\n")
    with make_pod(make_service()) as pod:
        assert "an old story" not in (pod.logs / "engine.log").read_text()


def test_restarts_come_later_each_time_up_to_ten_seconds():
    delays = [restart_delay(failures) for failures in (1, 2, 3, 4, 5, 6, 100)]
    assert delays == [0.5, 1, 2, 4, 8, 10, 10]


def test_the_settings_file_is_complete_json_at_every_moment(make_pod, make_service):
    with make_pod(make_service()) as pod:
        file = pod.workdir / "settings.json"
        for gamma in (0, 1, 2, 3):
            pod.apply(make_service(planner={"gammaMax": gamma}))
            assert json.loads(file.read_text())["planner"]["gammaMax"] == gamma
        assert not file.with_suffix(".new").exists()


def test_the_cause_of_a_failed_start_is_found_above_the_servers_own_traceback():
    core = ["(EngineCore pid=7) ERROR 11-29 19:56:57 [core.py:1510] ValueError: no memory for KV blocks"]
    server = [f"  File {line}" for line in range(30)]
    causes, last = split_log([*core, "ValueError: no memory for KV blocks", *server, "RuntimeError: see above"])
    assert causes == ["ValueError: no memory for KV blocks"]
    assert last[-1] == "RuntimeError: see above"
    assert len(last) == 20


def test_an_error_in_the_last_lines_is_not_said_twice():
    lines = ["ValueError: one", *["noise"] * 30, "ValueError: one"]
    assert split_log(lines) == ([], [*["noise"] * 19, "ValueError: one"])


def test_fields_that_only_a_cluster_obeys_are_named_before_anything_starts(make_pod, make_service, events):
    with make_pod(make_service(replicas=2)):
        pass
    assert events[0].message == "spec.replicas: no effect here, only a cluster obeys"


def test_a_model_on_a_volume_claim_is_refused_with_what_to_write_instead(make_pod, make_service):
    service = make_service(target={"source": {"pvc": {"claimName": "models"}}})
    with (
        pytest.raises(ConfigurationError, match=r"spec\.target\.source\.pvc: .*spec\.target\.source\.path"),
        make_pod(service),
    ):
        pass


def test_the_document_says_how_long_loading_and_draining_may_take(make_service):
    service = make_service(engine={"startupTimeout": "90s"}, drainTimeout="1.5s")
    assert Deadlines.of(service) == Deadlines(engine_ready=90, drain=2)
