"""What differs between two versions of a document, and what of it reaches a running pod."""

from typing import Any

from nightjar_api.service import NightjarService

_LIVE = ("spec.planner.", "spec.memory.")
# An engine is started with elastic memory or without.
_RESTARTING = ("spec.memory.elastic",)


def changed(old: NightjarService, new: NightjarService) -> list[str]:
    """Paths of the fields that differ, as people write them: `spec.planner.gammaMax`."""
    return _differences("", old.model_dump(mode="json", by_alias=True), new.model_dump(mode="json", by_alias=True))


def needing_restart(paths: list[str]) -> list[str]:
    return [path for path in paths if not path.startswith(_LIVE) or path in _RESTARTING]


def _differences(path: str, old: Any, new: Any) -> list[str]:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return [] if old == new else [path]
    inner = f"{path}." if path else ""
    keys = sorted(old.keys() | new.keys())
    return [found for key in keys for found in _differences(f"{inner}{key}", old.get(key), new.get(key))]
