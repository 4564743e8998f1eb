import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nightjar_api.service import NightjarService
from nightjar_benchmarks.ports import free_port
from nightjar_operator.local.programs import Programs

DOUBLES = Path(__file__).parent / "doubles"


@pytest.fixture
def doubles() -> Programs:
    def program(name: str) -> tuple[str, str]:
        return (sys.executable, str(DOUBLES / name))

    return Programs(program("engine_double.py"), program("sidecar_double.py"), {})


@pytest.fixture
def make_service(tmp_path: Path) -> Callable[..., NightjarService]:
    """`make_service(draft=…, engine={…}, planner={…})`, on free ports and with model folders that exist."""
    for model in ("target", "draft"):
        (tmp_path / model).mkdir()
        (tmp_path / model / "config.json").write_text("{}")
    port = free_port()

    def make(*, draft: bool | dict = True, engine: dict = {}, **spec: object) -> NightjarService:  # noqa: B006
        if draft is True:
            draft = {"source": {"path": str(tmp_path / "draft")}}
        document = {
            "apiVersion": "nightjar.dev/v1alpha1",
            "kind": "NightjarService",
            "metadata": {"name": "story"},
            "spec": {
                "target": {"source": {"path": str(tmp_path / "target")}},
                "engine": {"port": port, **engine},
                **({"draft": draft} if draft else {}),
                **spec,
            },
        }
        return NightjarService.model_validate(document)

    return make
