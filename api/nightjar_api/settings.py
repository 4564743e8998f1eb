"""The settings file that the sidecar follows while it runs.

The operator writes it as a ConfigMap, `nightjar local` as a file; both from the service's spec, so a person
tunes one place. `revision` tells which spec a pod obeys.
"""

from pathlib import Path

from pydantic import ValidationError

from nightjar_api.errors import ConfigurationError, from_validation
from nightjar_api.memory import MemorySpec
from nightjar_api.model import Model
from nightjar_api.service import NightjarService, PlannerSpec


class SidecarSettings(Model):
    """The file as a whole."""

    revision: str
    planner: PlannerSpec = PlannerSpec()
    memory: MemorySpec = MemorySpec()


def for_service(service: NightjarService, revision: str) -> SidecarSettings:
    return SidecarSettings(revision=revision, planner=service.spec.planner, memory=service.spec.memory)


def dump(settings: SidecarSettings) -> str:
    """The file's text: what differs from the defaults.

    So a sidecar that is older than the operator knows every field of its file, until somebody uses a new one.
    """
    return settings.model_dump_json(by_alias=True, indent=2, exclude_defaults=True) + "\n"


def load(path: Path) -> SidecarSettings:
    """Read a settings file; ConfigurationError when it is missing, malformed or out of range."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path}: a readable settings file is required: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: JSON in UTF-8 is required: {error}") from error
    try:
        return SidecarSettings.model_validate_json(text, by_alias=True, by_name=False)
    except ValidationError as error:
        raise from_validation(str(path), error) from error
