"""The examples are documents that a cluster takes, with nothing to warn of."""

from pathlib import Path

import pytest
import yaml

from nightjar_api import service as documents
from nightjar_operator.admission import Verdict, review
from nightjar_operator.manifests import Images, Owner, manifests

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("kubernetes*.yaml"))
GIB = 2**30


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_is_taken_by_the_api_server_with_all_that_is_made_of_it(server, file):
    answer = server.create(yaml.safe_load(file.read_text(encoding="utf-8")))
    assert answer.found is not None, answer.refusal
    service = documents.from_object(answer.found)
    for manifest in manifests(service, Owner("default", service.metadata.name, "u"), Images("engine:1", "sidecar:1")):
        applied = server.apply(manifest)
        assert applied.found is not None, applied.refusal


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_gives_no_reason_to_warn(file):
    assert review(yaml.safe_load(file.read_text(encoding="utf-8")), None, 80 * GIB) == Verdict()
