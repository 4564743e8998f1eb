"""The control plane of the other tests: which one is taken, and that it is one."""

import os
import signal
from pathlib import Path

import pytest
from kubernetes import client, config

from nightjar_benchmarks.control_plane import NoControlPlaneError, running
from nightjar_benchmarks.ports import free_ports
from nightjar_benchmarks.stopping import interrupted_by_signals, undisturbed

ROOT = Path(__file__).parents[2]


def kubeconfig(folder, context):
    file = folder / "kubeconfig"
    file.write_text(f"current-context: {context}\n")
    return {"KUBECONFIG": str(file)}


def namespaces(plane):
    with config.new_client_from_config(str(plane.kubeconfig)) as api:
        return {item.metadata.name for item in client.CoreV1Api(api).list_namespace().items}


def test_the_shared_control_plane_answers(control_plane):
    assert "default" in namespaces(control_plane)


def test_a_given_cluster_goes_first(tmp_path):
    environ = kubeconfig(tmp_path, "kind-test") | {"KUBEBUILDER_ASSETS": "/nowhere"}
    with running(ROOT, environ) as plane:
        assert plane.kubeconfig == tmp_path / "kubeconfig"


def test_a_cluster_that_may_be_somebodys_is_refused(tmp_path):
    with pytest.raises(ValueError, match="found 'production'"), running(ROOT, kubeconfig(tmp_path, "production")):
        pass


def test_without_any_the_message_says_how_to_get_one(tmp_path):
    with pytest.raises(NoControlPlaneError, match="kind create cluster"), running(tmp_path / "elsewhere", {}):
        pass


def test_binaries_alone_make_a_control_plane(control_plane):
    assets = os.environ.get("KUBEBUILDER_ASSETS") or ROOT / "out" / "envtest" / "bin"
    if not (Path(assets) / "kube-apiserver").exists():
        pytest.skip("a folder with etcd and kube-apiserver is required: setup-envtest use -p path")
    with running(ROOT, {"KUBEBUILDER_ASSETS": str(assets)}) as plane:
        assert "default" in namespaces(plane)
        assert not plane.has_controllers


def test_ending_what_was_started_cannot_be_cut_short():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with undisturbed():
        for number in numbers:
            signal.raise_signal(number)
    assert [signal.getsignal(number) for number in numbers] == before


def test_being_stopped_is_like_ctrl_c():
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        signal.raise_signal(signal.SIGTERM)


# Stands in for envtest's program: real port collisions cannot be had on demand.
DOUBLE = """
import pathlib, sys
verb, folder = sys.argv[1], pathlib.Path(sys.argv[3])
(folder / "bin").mkdir(parents=True, exist_ok=True)
calls = pathlib.Path(__file__).parent / "calls"
calls.write_text((calls.read_text() if calls.exists() else "") + verb + " ")
ups = calls.read_text().split().count("up")
if verb == "up" and ups <= {failures}:
    sys.exit("kube-scheduler ended; last lines of its log: {reason}")
"""


@pytest.fixture
def starts(tmp_path):
    """`starts(failures, reason)` starts a control plane whose first starts fail, and returns the calls it took."""

    def start(failures, reason):
        folder = tmp_path / "shared" / "envtest"
        folder.mkdir(parents=True)
        (folder / "cluster.py").write_text(DOUBLE.format(failures=failures, reason=reason))
        try:
            with running(tmp_path / "repository", {}):
                pass
        except RuntimeError:
            pass
        return (folder / "calls").read_text().split()

    return start


@pytest.mark.parametrize("reason", ["bind: address already in use", "kube-apiserver was not ready after 90 s"])
def test_a_trouble_that_passes_costs_another_start(starts, reason):
    assert starts(1, reason) == ["bin", "up", "down", "up", "down"]


def test_starts_are_few_when_ports_stay_taken(starts):
    assert starts(9, "bind: address already in use") == ["bin", *["up", "down"] * 3]


def test_what_fails_for_another_reason_is_not_tried_again(starts):
    assert starts(1, "no such file") == ["bin", "up", "down"]


def test_free_ports_are_none_that_a_connection_may_take():
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found = free_ports(20)
    assert all(port + 1 < lowest for port in found)
    assert len({number for port in found for number in (port, port + 1)}) == 40
