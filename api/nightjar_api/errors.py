"""Errors a person can act on.

ConfigurationError    refuse to start, or keep the settings in force; the message says what is required,
                      what was found, where, and what to do
"""

from pydantic import ValidationError
from pydantic_core import ErrorDetails


class ConfigurationError(ValueError):
    """Something a person wrote is wrong; the message is complete without a traceback."""


def from_validation(where: str, error: ValidationError) -> ConfigurationError:
    """One line per problem: `where: path: what is required, found …`."""
    return ConfigurationError("\n".join(f"{where}: {line}" for line in problems(error)))


def problems(error: ValidationError) -> list[str]:
    """One line per problem: `path: what is required, found …`."""
    return [_line(problem) for problem in error.errors(include_url=False)]


def _line(problem: ErrorDetails) -> str:
    parts = [str(part) for part in problem["loc"]]
    if problem["type"] == "rule" and problem["ctx"]["field"]:
        parts.append(problem["ctx"]["field"])
    path = ".".join(parts) or "document"
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "missing":
        return f"{path}: required, found nothing"
    if problem["type"] in ("value_error", "rule"):
        # Our own validators say what was found.
        return f"{path}: {message}"
    return f"{path}: {message}, found {problem['input']!r}"
