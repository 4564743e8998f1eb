"""`nightjar top`: what it reads, how it shows it, whom it asks."""

import asyncio
import io
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from kubernetes.aio.client import ApiClient
from rich.console import Console
from typer.testing import CliRunner

from nightjar_api.cli import build
from nightjar_benchmarks.operator_figures.cluster_side import eventually, make_namespace
from nightjar_benchmarks.operator_figures.fake_sidecars import FakeSidecars, serving, status
from nightjar_benchmarks.page.stage import stage
from nightjar_benchmarks.ports import free_port
from nightjar_operator import connection
from nightjar_operator.cluster import Cluster
from nightjar_operator.kinds import MANAGED_BY_LABEL, MANAGER, POD, SERVICE_LABEL, Kind
from nightjar_operator.reports import MalformedReportError
from nightjar_operator.top.reading import reading
from nightjar_operator.top.screen import remembered
from nightjar_operator.top.sources import base_url
from nightjar_operator.top.view import Seen, duration, many, one, size

SERVICE_ACCOUNT = Kind("", "v1", "ServiceAccount", "serviceaccounts")


def text(renderable, width=110):
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return console.file.getvalue()


def line(shown, beginning):
    return next(each for each in shown.splitlines() if each.strip("▶ ").startswith(beginning))


@pytest.fixture
def run(monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def invoke(*arguments):
        return CliRunner().invoke(build("top"), ["top", *arguments], env={"COLUMNS": "110", "TERM": "dumb"})

    return invoke


def test_one_sidecar_is_shown_with_its_plan_and_what_it_rests_on():
    shown = text(one(Seen("chat-0", reading(status("r1"))), 110))
    assert "nightjar chat-0" in shown
    assert "policy nightjar, settings r1" in shown
    assert "▶ 5–8" in shown
    # γ = 3 is the plan of 5–8; 3600 rounds measured it to ± 3 %, none measured γ = 0.
    assert line(shown, "5–8").split()[-3:] == ["3.50✓", "±3%", "4k"]
    assert line(shown, "5–8").split("5–8")[1].split()[0] == "5.00"
    assert "12.3 ms" in shown
    assert "γ 0 → 3 (2 times)" in shown
    assert re.search(r"25 %\s+#12", shown)


def test_a_plan_for_batches_that_were_never_served_is_marked_as_such():
    found = status("r1")
    buckets = found["buckets"]
    buckets[1]["arms"] = [arm | {"visits": 0, "measuredMarginSeconds": None} for arm in buckets[1]["arms"]]
    shown = text(one(Seen("chat-0", reading(found)), 110))
    assert "○ none served yet" in shown
    assert [line(shown, span).count("○") for span in ("1", "2", "3–4", "5–8")] == [0, 1, 0, 0]
    assert [line(shown, span).count("✓") for span in ("1", "2", "3–4", "5–8")] == [1, 0, 1, 1]
    assert line(shown, "2").split()[-1] == "3.50○"


def test_without_a_plan_in_force_nothing_is_shown_as_held():
    found = status("r1")
    found["buckets"][0]["schedule"] = [{"gamma": 1, "steps": 8}]
    assert "1 → 1" in text(one(Seen("chat-0", reading(found)), 110))
    found["plan"] = {"version": None, "ageSeconds": None, "obeyed": None}
    shown = text(one(Seen("chat-0", reading(found)), 110)).split("what happened")[0].split("→ trying)")[1]
    assert not set(shown) & {"✓", "○", "→"}


def test_the_plans_age_and_what_it_is_believed_to_cost_are_told():
    found = status("r1")
    assert (
        line(text(one(Seen("chat-0", reading(found)), 110)), "plan") == "plan taken 0 s ago, regret 1.2 % as believed"
    )
    found["regret"] = {"share": None, "rounds": 0}
    found["plan"] = found["plan"] | {"ageSeconds": 90.0}
    assert line(text(one(Seen("chat-0", reading(found)), 110)), "plan") == "plan taken 90 s ago"
    found["plan"] = found["plan"] | {"version": None, "ageSeconds": None}
    assert line(text(one(Seen("chat-0", reading(found)), 110)), "plan") == "plan none was taken"


def test_memory_is_a_bar_whose_parts_differ_by_more_than_colour():
    shown = text(one(Seen("chat-0", reading(status("r1"))), 110))
    bar = line(shown, "memory")
    assert (bar.count("█"), bar.count("▒"), bar.count("░")) == (36, 6, 6)
    assert "8.0 GiB" in bar
    assert "target's KV 6.0 GiB" in shown
    assert "draft's weights 1.0 GiB" in shown
    away = status("r1")
    away["speculation"] = away["speculation"] | {"draftResidency": "DRAFT_RESIDENCY_AWAY"}
    assert "draft's weights 1.0 GiB (away)" in text(one(Seen("chat-0", reading(away)), 110))


def test_eighty_columns_are_enough():
    shown = text(one(Seen("chat-0", reading(status("r1"))), 60), width=60)
    assert "…" not in shown.split("what happened")[0].split("ms per token")[1]
    assert line(shown, "5–8").split()[-1] == "3.50✓"
    wide = text(one(Seen("chat-0", reading(status("r1"))), 80), width=80)
    assert "…" not in wide
    assert line(wide, "5–8").split()[-3:] == ["3.50✓", "±3%", "4k"]


def test_what_happens_often_leaves_room_for_what_seldom_happens():
    found = status("r1")
    often = [{"kind": "gamma", "message": f"γ 0 → {n}", "count": 1, "ageSeconds": n} for n in range(20)]
    seldom = {"kind": "settings", "message": "revision r1 is in force", "count": 1, "ageSeconds": 99}
    found["events"] = [*often, seldom]
    shown = text(one(Seen("chat-0", reading(found)), 110))
    assert "revision r1 is in force" in shown
    assert shown.count("γ 0 →") == 3


def test_a_long_event_goes_on_below_its_own_beginning():
    found = status("r1") | {"events": [{"ageSeconds": 3, "kind": "engine", "message": "away " * 20, "count": 1}]}
    lines = text(one(Seen("chat-0", reading(found)), 80), 80).rstrip().splitlines()
    column = lines[-2].index("away")
    assert lines[-2].split()[:3] == ["3", "s", "engine"]
    assert lines[-1][:column].isspace()
    assert lines[-1][column:].startswith("away")


def test_beliefs_of_a_column_have_as_many_digits():
    found = status("r1")
    for bucket, seconds in zip(found["buckets"], (0.004, 0.0123), strict=False):
        bucket["arms"][0]["believedSecondsPerToken"] = seconds
    shown = text(one(Seen("chat-0", reading(found)), 110))
    assert "4.00" in shown
    assert "12.3" in shown


def test_a_sidecar_without_an_engine_is_shown_too():
    found = status("r1") | {"reason": "the engine is not connected: no attempt", "buckets": [], "memoryBytes": None}
    found["steps"] = found["steps"] | dict.fromkeys(("running", "waiting", "batch", "freeBlocks", "totalBlocks"))
    shown = text(one(Seen("chat-0", reading(found)), 110))
    assert "! the engine is not connected: no attempt" in shown
    assert "memory" not in shown
    assert "–" in shown


def test_pods_are_rows_and_troubles_are_told_below():
    refused = status("r1")
    refused["settings"] = refused["settings"] | {"error": "planner.gammaMax: no"}
    shown = text(
        many([Seen("chat-0", reading(status("r1"))), Seen("chat-1", reading(refused)), Seen("chat-2", silence="gone")])
    )
    assert line(shown, "chat-0").split()[1:5] == ["3", "8", "0", "812"]
    assert "chat-1 !" in shown
    assert "! chat-1: settings refused: planner.gammaMax: no" in shown
    assert "! chat-2: gone" in shown


def test_who_falls_silent_keeps_what_it_said_last_and_says_so():
    before = [Seen("chat-0", reading(status("r1")))]
    now = remembered(before, [Seen("chat-0", silence="refused"), Seen("chat-1", silence="new")])
    assert [seen.reading for seen in now] == [before[0].reading, None]
    assert "✕ no answer, trying again: refused" in text(one(now[0], 110))


@pytest.mark.parametrize("found", [None, [], {}, {"steps": {}}, status("r1") | {"buckets": [{}]}])
def test_another_answer_than_a_sidecars_is_refused(found):
    with pytest.raises(MalformedReportError, match="the JSON of a sidecar's /status is required"):
        reading(found)


def test_quantities_are_short():
    assert [duration(seconds) for seconds in (0, 2.5e-6, 0.0123, 3)] == ["0", "2.5 µs", "12.3 ms", "3 s"]
    assert [size(count) for count in (0, 1023, 1536, 6 << 30, 200 << 20)] == [
        "0 B", "1023 B", "1.5 KiB", "6.0 GiB", "200 MiB"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("127.0.0.1:8001", "http://127.0.0.1:8001"),
        ("http://pod/status", "http://pod"),
        ("https://host:1/x/", "https://host:1/x"),
        ("[::1]:8001", "http://[::1]:8001"),
    ],
)
def test_an_address_is_a_host_with_a_port_or_a_url(address, url):
    assert base_url(address) == url


def test_what_is_wrong_is_told_in_one_sentence(run, tmp_path):
    fixed = tmp_path / "njs.yaml"
    fixed.write_text(
        "apiVersion: nightjar.dev/v1alpha1\nkind: NightjarService\nmetadata: {name: x}\n"
        "spec: {target: {source: {path: /m}}}\n"
    )
    port = free_port()
    for arguments, wanted in (
        (["ftp://x"], "ADDRESS: host:port or an http:// URL is required, found 'ftp://x'"),
        (["a:b"], "ADDRESS: host:port or an http:// URL is required, found 'a:b'"),
        ([f"127.0.0.1:{port}"], f"a sidecar that answers is required, found 127.0.0.1:{port}: Cannot connect"),
        (["x:1", "-n", "y"], "one of ADDRESS, --file and --namespace is required, found ADDRESS and --namespace"),
        (["--pod", "x"], "--pod: --namespace is required with it, found none"),
        (["-f", str(tmp_path / "none")], "a readable NightjarService document is required"),
        (["-f", str(fixed)], "a service whose γ is planned is required: the service has no draft"),
        (["-n", "x", "--kubeconfig", str(tmp_path / "none")], f"found {tmp_path / 'none'}: no file"),
    ):
        found = run(*arguments)
        assert found.exit_code == 1, arguments
        assert wanted in found.output
        assert len(found.output.splitlines()) == 1, found.output


@pytest.fixture(scope="module")
def live():
    """The address of a real sidecar that has seen steps of a fake engine."""
    with stage() as there, there.engine():
        deadline = time.monotonic() + 300
        while httpx.get(f"{there.url}status", trust_env=False, timeout=60).json()["steps"]["seen"] < 50:
            assert time.monotonic() < deadline, "steps are required, found none"
            time.sleep(0.1)
        yield there.url


def test_a_live_sidecar_is_shown_once_on_a_pipe(run, live):
    found = run(live)
    assert found.exit_code == 0, found.output
    assert "Qwen2.5-7B (fake engine) + Qwen2.5-0.5B" in found.output
    assert "γ = 5" in found.output
    assert "▶" in found.output
    assert "target's KV 3.4 GiB" in found.output
    assert "engine    connected" in found.output


def test_in_a_terminal_it_goes_on_until_ctrl_c(live):
    command = [sys.executable, "-c", "from nightjar_api.cli import main; main()", "top", live]
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "110", "LINES": "40"}
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = b""
        # A title a picture: by the third it has asked again twice.
        while shown.count(b"policy") < 3:
            shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        # A terminal that nobody reads would hold it up; it ends with an error once the program has gone.
        with suppress(OSError):
            while rest := os.read(ours, 65536):
                shown += rest
        assert process.wait(300) == 0
    os.close(ours)
    assert b"Traceback" not in shown


def test_the_stand_in_of_other_tests_says_all_that_a_sidecar_says(live):
    real = httpx.get(f"{live}status", trust_env=False, timeout=60).json()
    assert status("r1").keys() == real.keys()


@asynccontextmanager
async def a_pod(plane, address, port):
    """A pod that seems to run at `address`, in a namespace of its own."""
    async with ApiClient(await connection.configuration(plane.kubeconfig)) as client:
        admin = Cluster(client, lambda _verb, _kind: None)
        namespace = await make_namespace(admin)
        name = f"chat-{secrets.token_hex(2)}"
        labels = {MANAGED_BY_LABEL: MANAGER, SERVICE_LABEL: "chat"}
        sidecar = {"name": "sidecar", "image": "none", "ports": [{"name": "status", "containerPort": port}]}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"initContainers": [sidecar], "containers": [{"name": "engine", "image": "none"}]},
        }
        # Pods are refused before it is there.
        await eventually(lambda: admin.get(SERVICE_ACCOUNT, namespace, "default"), "the namespace's service account")
        await admin.create(POD, namespace, body)
        running = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        await admin._request("patch", path, body=running, content_type="application/merge-patch+json")
        try:
            yield namespace, name
        finally:
            await admin._request("delete", f"/api/v1/namespaces/{namespace}")


def own_address():
    """Of this machine, not the loopback: the API server proxies to no loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.1", 9))
        except OSError:
            pytest.skip("an address besides the loopback is required, found none: connect a network")
        return probe.getsockname()[0]


async def test_pods_of_a_namespace_are_asked_through_the_kubernetes_api(control_plane, controllers, run):
    port = free_port()
    kubeconfig = ["--kubeconfig", str(control_plane.kubeconfig)]
    async with serving(FakeSidecars(), port), a_pod(control_plane, own_address(), port) as (namespace, name):
        row = await asyncio.to_thread(run, "-n", namespace, *kubeconfig)
        assert line(row.output, name).split()[1:5] == ["3", "8", "0", "812"]
        whole = await asyncio.to_thread(run, "-n", namespace, "--pod", name, *kubeconfig)
        assert f"nightjar {name}" in whole.output
        assert "target's KV 6.0 GiB" in whole.output
        other = await asyncio.to_thread(run, "-n", namespace, "--pod", "other", *kubeconfig)
        assert "the pod other of a NightjarService is required, found none" in other.output
        none = await asyncio.to_thread(run, "-n", "no-such-namespace", *kubeconfig)
        assert (none.exit_code, "found none in no-such-namespace" in none.output) == (1, True)


async def test_a_pod_that_does_not_answer_is_a_row_with_the_reason(control_plane, controllers, run):
    async with a_pod(control_plane, own_address(), free_port()) as (namespace, name):
        found = await asyncio.to_thread(run, "-n", namespace, "--kubeconfig", str(control_plane.kubeconfig))
    assert found.exit_code == 0
    assert f"{name} !" in found.output
    assert f"! {name}: GET /api/v1/namespaces/{namespace}/pods/{name}" in found.output
