"""Follows the settings file while it changes: written in place, renamed over, or swapped as a ConfigMap."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from watchfiles import awatch

from nightjar_api import settings
from nightjar_api.errors import ConfigurationError
from nightjar_api.settings import SidecarSettings

# A ConfigMap swap is a burst of events.
_QUIET_MS = 50
_DEBOUNCE_MS = 400
# A folder that is removed and made again loses its watch; looking again bounds what is missed.
_LOOK_AGAIN_MS = 2000


async def follow(path: Path, first: SidecarSettings) -> AsyncIterator[SidecarSettings | ConfigurationError]:
    """What reading `path` gives, each time that differs from the time before; `first` was read already.

    The folder is watched, not the file: a rename or a symlink swap leaves a watch on the file behind.
    """
    last: SidecarSettings | str = first
    events = awatch(
        path.parent,
        watch_filter=None,
        debounce=_DEBOUNCE_MS,
        step=_QUIET_MS,
        rust_timeout=_LOOK_AGAIN_MS,
        yield_on_timeout=True,
        recursive=False,
    )
    async for _ in events:
        outcome = await asyncio.to_thread(_read, path)
        seen = str(outcome) if isinstance(outcome, ConfigurationError) else outcome
        if seen != last:
            last = seen
            yield outcome


def _read(path: Path) -> SidecarSettings | ConfigurationError:
    try:
        return settings.load(path)
    except ConfigurationError as error:
        return error
