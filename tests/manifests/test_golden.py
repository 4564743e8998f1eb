"""The manifests of some documents, byte for byte.

A difference in a pod template means that an operator upgrade rolls every pod of every service that looks like
this: change a golden template only for something that is worth it, and say so in the CHANGELOG.
`python tests/manifests/test_golden.py` writes the files anew.
"""

from pathlib import Path

import pytest
import yaml

from nightjar_api import service as documents
from nightjar_operator import yaml_text
from nightjar_operator.manifests import Images, Owner, manifests

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "documents").glob("*.yaml"))


def golden(name):
    service = documents.load(HERE / "documents" / f"{name}.yaml")
    owner = Owner(service.metadata.namespace, service.metadata.name, "7d2f6c1e-0000-4000-8000-000000000000")
    return yaml_text.dump(*manifests(service, owner, Images("example.com/engine:0", "example.com/sidecar:0")))


@pytest.mark.parametrize("name", NAMES)
def test_the_manifests_of_a_document_stay_as_they_are_byte_for_byte(name):
    assert golden(name) == (HERE / "golden" / f"{name}.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_an_upgrade_of_the_operator_leaves_the_pod_template_of_an_unchanged_spec_as_it_is(name):
    def template(text):
        return next(found["spec"]["template"] for found in yaml.safe_load_all(text) if found["kind"] == "Deployment")

    assert template(golden(name)) == template((HERE / "golden" / f"{name}.yaml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    for each in NAMES:
        (HERE / "golden" / f"{each}.yaml").write_text(golden(each), encoding="utf-8")
