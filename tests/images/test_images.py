"""What can be known of the images without building them; building and running is what tests/cluster does."""

import io
import json
import os
import re
import secrets
import subprocess
import sys
import time
from importlib.metadata import requires
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from rich.console import Console

from nightjar_api.containers import SecuritySpec
from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.images import build, inventory
from nightjar_benchmarks.images.__main__ import comparison, table
from nightjar_benchmarks.images.dates import VARIABLE, commit_date
from nightjar_benchmarks.images.inventory import Entry, entry
from nightjar_benchmarks.images.parts import PARTS, pinned, reference
from nightjar_benchmarks.programs import require_programs, run
from nightjar_benchmarks.records import git

ROOT = Path(__file__).parents[2]
VLLM = Path(build.__file__).parent / "bases" / "vllm.sh"
INPUTS = st.lists(st.binary(max_size=8), max_size=4)


def dockerfile(part):
    return (ROOT / part.dockerfile).read_text(encoding="utf-8")


@given(INPUTS, INPUTS)
def test_the_tag_tells_inputs_apart(one, other):
    assert (reference("engine", one) == reference("engine", other)) == (one == other)


def test_the_tag_is_not_latest():
    # Kubernetes would ask a registry for it at every start.
    assert re.fullmatch(r"localhost/nightjar-engine:[0-9a-f]{12}", reference("engine", [b""]))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_an_image_runs_as_the_user_of_the_manifests(part):
    users = re.findall(r"^USER (.+)$", dockerfile(part), re.MULTILINE)
    security = SecuritySpec()
    assert users[-1] == f"{security.run_as_user}:{security.run_as_group}"


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_base_can_be_named_and_has_a_public_default(part):
    assert re.search(r"^ARG BASE=docker\.io/\S+:\S+$", dockerfile(part), re.MULTILINE)


def test_the_engines_default_base_is_the_accepted_vllm():
    (accepted,) = [
        requirement.specifier for requirement in map(Requirement, requires("nightjar")) if requirement.name == "vllm"
    ]
    (engine,) = [part for part in PARTS if part.name == "engine"]
    (version,) = re.findall(r"^ARG BASE=\S+:v(\S+)$", dockerfile(engine), re.MULTILINE)
    assert version in accepted


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Two commits: of `first` in 2001, of `second` ten seconds later."""
    monkeypatch.delenv(VARIABLE, raising=False)
    git(tmp_path, "init", "--quiet")
    for name, date in (("first", 1_000_000_000), ("second", 1_000_000_010)):
        (tmp_path / name).touch()
        git(tmp_path, "add", name)
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"{date} +0000")
        someone = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
        git(tmp_path, *someone, "commit", "--quiet", "-m", name)
    return tmp_path


def test_an_image_bears_the_date_of_the_commit_that_changed_what_it_is_made_of(repository):
    assert commit_date(repository) == "1000000010"
    assert commit_date(repository, repository / "first") == "1000000000"
    assert commit_date(repository, repository / "first", repository / "second") == "1000000010"


def test_another_date_can_be_named_as_everywhere(repository, monkeypatch):
    monkeypatch.setenv(VARIABLE, "1700000000")
    assert commit_date(repository) == "1700000000"
    monkeypatch.setenv(VARIABLE, "yesterday")
    with pytest.raises(ConfigurationError, match=r"SOURCE_DATE_EPOCH requires seconds since 1970.*'yesterday'"):
        commit_date(repository)


def test_without_a_commit_no_date_is_made_up(repository, tmp_path_factory):
    with pytest.raises(ConfigurationError, match=r"/third is required, found none; commit it or set SOURCE_DATE_EPOCH"):
        commit_date(repository, repository / "third")
    with pytest.raises(ConfigurationError, match="the date of a commit of"):
        commit_date(tmp_path_factory.mktemp("no-clone"))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_what_python_compiles_in_an_image_holds_no_times(part):
    before_run = dockerfile(part).partition("RUN ")[0]
    assert "\nARG SOURCE_DATE_EPOCH\n" in before_run


def test_a_base_is_named_by_its_digest():
    assert pinned("localhost:5000/nightjar-debian:0123", "sha256:ab") == "localhost:5000/nightjar-debian@sha256:ab"


DATE = "1700000000"


@pytest.fixture
def built(tmp_path):
    """Builds an image of this text on a base, with the command that builds ours; gives its reference and digest."""
    try:
        require_programs({"buildah": "buildah"})
    except ConfigurationError as error:
        pytest.skip(str(error))
    if os.geteuid():
        pytest.skip("root is required to build images, found another user")
    made = []

    def make(base, text):
        context = tmp_path / secrets.token_hex(4)
        context.mkdir()
        (context / "text").write_text(text)
        (context / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\nARG SOURCE_DATE_EPOCH\nCOPY text /text\n")
        image = f"localhost/nightjar-test:{secrets.token_hex(6)}"
        build.bud(image, context / "Dockerfile", context, DATE, BASE=base)
        made.append(image)
        return image, build.identity(image)

    yield make
    for image in reversed(made):
        run("buildah", "rmi", image)


def test_two_builds_of_one_tree_have_one_digest_and_another_tree_has_another(built):
    base, one = built("scratch", "a")
    # A second later: no time of the machine's is in it.
    time.sleep(1)
    assert built("scratch", "a")[1] == one
    assert built("scratch", "b")[1] != one
    on_it = [built(build.pinned_to_content(base), "c")[1] for _ in range(2)]
    assert on_it[0] == on_it[1]


def test_a_base_of_another_digest_is_not_taken(built):
    base, _ = built("scratch", "a")
    with pytest.raises(RuntimeError, match="sha256:0000"):
        built(pinned(base, f"sha256:{'0' * 64}"), "b")


def test_what_differs_between_two_builds_is_told():
    console = Console(width=80, record=True, file=io.StringIO())
    same, other = f"sha256:{'ab' * 32}", f"sha256:{'cd' * 32}"
    console.print(comparison([(reference("sidecar", [b""]), same, same), (reference("engine", [b""]), same, other)]))
    lines = [line.split() for line in console.export_text().splitlines()]
    assert lines[1][1:] == ["abababababab", "the", "same"]
    assert lines[2][1:] == ["abababababab", "cdcdcdcdcdcd"]


def test_missing_programs_are_named_with_their_packages():
    with pytest.raises(ConfigurationError, match=r"found no nft-of-nowhere; as root: apt-get install -y nftables"):
        require_programs({"sh": "dash", "nft-of-nowhere": "nftables"})


def vllm(tmp_path, *arguments):
    """The script that stands for vLLM's command, with a Python that only says how it was called."""
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\nfor argument in "$@"; do echo "$argument"; done\n')
    python.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    return subprocess.run(["/bin/sh", VLLM, *arguments], env=environ, capture_output=True, text=True, check=False)


def test_serve_hands_the_model_over_by_its_flag(tmp_path):
    done = vllm(tmp_path, "serve", "/models/large", "--served-model-name", "a b")
    assert done.returncode == 0
    module = ["-m", "vllm.entrypoints.launchers.api_server.entry"]
    assert done.stdout.splitlines() == [*module, "--model", "/models/large", "--served-model-name", "a b"]


def test_other_commands_of_vllm_are_refused(tmp_path):
    done = vllm(tmp_path, "bench", "latency")
    assert (done.returncode, done.stdout) == (2, "")
    assert "found 'bench latency'" in done.stderr


def test_an_image_is_told_by_what_is_in_it(tmp_path):
    components = [{"type": "library"}, {"type": "library"}, {"type": "operating-system"}]
    bill = tmp_path / "nightjar-sidecar-1.cdx.json"
    bill.write_text(json.dumps({"components": components}))
    layers = [{"size": 1_500_000}, {"size": 500_000}]
    about = {
        "FromImageID": "ab" * 32,
        "OCIv1": {"rootfs": {"diff_ids": ["sha256:1", "sha256:2"]}},
        "Manifest": json.dumps({"layers": layers}),
    }
    found = entry("localhost/nightjar-sidecar:1", about, bill)
    assert (found.id, found.layers) == (f"sha256:{'ab' * 32}", ("sha256:1", "sha256:2"))
    assert (found.size, found.packages, found.bill) == (2_000_000, 2, bill.name)


def test_the_table_of_images_fits_a_terminal():
    one = Entry(reference("operator", [b""]), f"sha256:{'ab' * 32}", (), 3_141_592_653, 169, "bill")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table([one]))
    assert console.export_text().splitlines()[1].split() == [one.image, "abababababab", "3142", "169"]


def test_without_syft_the_message_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    with pytest.raises(ConfigurationError, match=r"the program syft is required.*make setup"):
        inventory.syft()
