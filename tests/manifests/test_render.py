"""`nightjar render` and `nightjar crd` as a person meets them."""

from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from nightjar_operator import crd
from nightjar_operator.render import render

DOCUMENTS = Path(__file__).parent / "documents"


@pytest.fixture
def run():
    def run(function, *arguments):
        app = typer.Typer()
        app.command()(function)
        return CliRunner().invoke(app, arguments)

    return run


def test_it_prints_the_objects_that_the_operator_would_make(run):
    found = run(render, "-f", str(DOCUMENTS / "full.yaml"))
    assert found.exit_code == 0
    objects = list(yaml.safe_load_all(found.stdout))
    assert "Deployment" in {item["kind"] for item in objects}
    # There is no owner without a cluster.
    assert all("ownerReferences" not in item["metadata"] for item in objects)
    assert found.stderr == ""


def test_it_takes_the_images_that_the_operator_is_told(run):
    found = run(render, "-f", str(DOCUMENTS / "minimal.yaml"), "--engine-image", "example.com/other:2")
    assert "image: example.com/other:2" in found.stdout


def test_fields_without_effect_are_named_beside_the_manifests(run, tmp_path):
    file = tmp_path / "njs.yaml"
    document = yaml.safe_load((DOCUMENTS / "ngram-cpu.yaml").read_text())
    document["spec"]["planner"] = {"gammaMax": 1}
    file.write_text(yaml.safe_dump(document))
    found = run(render, "-f", str(file))
    assert found.exit_code == 0
    assert found.stderr == ("nightjar render: spec.planner: no effect, vLLM serves ngram with a fixed length\n")


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"target": {"source": {"path": "models"}}}, "spec.target.source.path: an absolute path is required"),
        ({"target": {"source": {}}}, "spec.target.source: exactly one of hub, pvc, path and uri is required, found []"),
    ],
)
def test_what_is_wrong_is_said_in_sentences_with_exit_code_1(run, tmp_path, spec, named):
    file = tmp_path / "njs.yaml"
    document = yaml.safe_load((DOCUMENTS / "minimal.yaml").read_text()) | {"spec": spec}
    file.write_text(yaml.safe_dump(document))
    found = run(render, "-f", str(file))
    assert (found.exit_code, found.stdout) == (1, "")
    assert named in found.stderr
    assert "Traceback" not in found.stderr


def test_the_definition_is_printed_as_it_is_generated(run):
    assert run(crd.crd).stdout == crd.text()
