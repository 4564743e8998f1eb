"""Errors of the sidecar, named for the reaction.

EngineAway            try again with backoff; serving goes on under the fallback
ChangeRefused         the engine's memory cannot change hands now; try again later
ConfigurationError    (nightjar_api) refuse to start, or keep the settings in force
"""


class EngineAway(Exception):  # noqa: N818 - says what happened; the reaction is to try again
    """The engine cannot be reached or refused a call; the message says which call and why."""


class ChangeRefused(Exception):  # noqa: N818 - says what happened
    """The engine says why not."""
