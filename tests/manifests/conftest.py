import copy
from pathlib import Path
from types import MappingProxyType

import pytest
import yaml

from nightjar_api import service as documents
from nightjar_operator.manifests import Images, Owner, manifests

FOLDER = Path(__file__).parent / "documents"
OWNER = Owner(namespace="prod", name="chat", uid="7d2f6c1e-0000-4000-8000-000000000000")
IMAGES = Images(engine="example.com/nightjar-engine:0.1", sidecar="example.com/nightjar-sidecar:0.1")


def edited(document, edits):
    """A copy of `document` with each `a.b.0.c` below spec set to its value."""
    changed = copy.deepcopy(document)
    for path, value in edits.items():
        *parents, last = [int(key) if key.isdecimal() else key for key in path.split(".")]
        part = changed["spec"]
        for key in parents:
            part = part[key] if isinstance(key, int) else part.setdefault(key, {})
        part[last] = copy.deepcopy(value)
    return changed


@pytest.fixture
def read():
    """`read("full", {"engine.port": 9000})`: a document of the folder, with edits."""
    return lambda name, edits=MappingProxyType({}): edited(yaml.safe_load((FOLDER / f"{name}.yaml").read_text()), edits)


@pytest.fixture
def build(read):
    """The manifests of a document by kind."""

    def build(name, edits=MappingProxyType({}), images=IMAGES):
        found = manifests(documents.from_object(read(name, edits)), OWNER, images)
        by_kind = {manifest["kind"]: manifest for manifest in found}
        assert len(by_kind) == len(found)
        return by_kind

    return build


@pytest.fixture
def pod(build):
    """The pod spec of a document."""
    return lambda name, edits=MappingProxyType({}): build(name, edits)["Deployment"]["spec"]["template"]["spec"]
