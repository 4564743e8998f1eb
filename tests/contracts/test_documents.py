"""What the documents point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_relative_link_leads_to_a_file(document):
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (document.parent / target).exists()]
    assert missing == []


def test_every_make_target_the_readme_names_exists():
    named = set(re.findall(r"`?make ([a-z]+)`?", (ROOT / "README.md").read_text(encoding="utf-8")))
    declared = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= declared


def test_every_planner_field_the_readme_explains_exists():
    from nightjar_api.service import NightjarServiceSpec

    def paths(model, prefix=""):
        for field in model.model_fields.values():
            path = prefix + field.alias
            yield path
            kinds = [field.annotation, *getattr(field.annotation, "__args__", ())]
            for kind in kinds:
                if hasattr(kind, "model_fields"):
                    yield from paths(kind, path + ".")

    table = re.findall(r"^\| `([a-zA-Z.]+)` \|", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    explained = [field for field in table if "." in field]
    assert explained
    assert set(explained) <= set(paths(NightjarServiceSpec))
