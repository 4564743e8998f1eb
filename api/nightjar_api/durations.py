"""Durations as people write them in resources: `12ms`, `1.5s`, `2m`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
# At most nine digits: no document can spell a duration that overflows anything.
_BODY = r"(0|[1-9][0-9]{0,8})(\.[0-9]{1,9})?(us|ms|s|m|h)"
PATTERN = f"^{_BODY}$"
AUTO_PATTERN = f"^(auto|{_BODY})$"
# Of the longest text the pattern allows: the API server prices rules by it.
LONGEST = 21


def seconds(text: str) -> float:
    """The duration in seconds; ValueError when `text` is not a number with one of the units us, ms, s, m, h."""
    found = re.fullmatch(PATTERN, text)
    if found is None:
        raise ValueError(f"a duration like 12ms, 1.5s or 2m is required, found {text!r}")
    whole, fraction, unit = found.groups()
    return float(whole + (fraction or "")) * _SECONDS[unit]


def _is_duration(text: str) -> str:
    seconds(text)
    return text


def _is_auto_or_duration(text: str) -> str:
    return text if text == "auto" else _is_duration(text)


Duration = Annotated[
    str, AfterValidator(_is_duration), Field(json_schema_extra={"pattern": PATTERN, "maxLength": LONGEST})
]
AutoOrDuration = Annotated[
    str, AfterValidator(_is_auto_or_duration), Field(json_schema_extra={"pattern": AUTO_PATTERN, "maxLength": LONGEST})
]


def cel_between(field: str, low: str, high: str) -> str:
    """The CEL expression for `low <= field <= high`; both durations."""
    return f"duration({field}) >= duration('{low}') && duration({field}) <= duration('{high}')"
