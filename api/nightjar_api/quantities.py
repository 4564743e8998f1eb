"""Amounts of resources as Kubernetes writes them: `500m`, `2`, `16Gi`."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import AfterValidator, Field

_FACTORS = {
    "": Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
# Six digits with the largest factor still fit the API server's numbers.
PATTERN = r"^(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$|^[1-9][0-9]{0,11}$"
_MOST = 10**12 - 1


def amount(quantity: str | int) -> Decimal:
    """In base units (cores, bytes, pieces); ValueError when it is no quantity."""
    text = str(quantity)
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", text)
    if found is None or re.fullmatch(PATTERN, text) is None:
        raise ValueError(f"an amount like 500m, 2 or 16Gi is required, found {quantity!r}")
    return Decimal(found[1]) * _FACTORS[found[2]]


def _is_quantity(quantity: str | int) -> str | int:
    amount(quantity)
    return quantity


Quantity = Annotated[
    Annotated[int, Field(ge=0, le=_MOST)] | str,
    AfterValidator(_is_quantity),
    Field(
        json_schema_extra={
            # People write `cpu: 4` as well as `cpu: 500m`.
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": PATTERN,
            "minimum": 0,
            "maximum": _MOST,
            "maxLength": 14,
        }
    ),
]

_SHARE_PATTERN = r"^(100|[1-9]?[0-9])%$"


def _is_share(found: str | int) -> str | int:
    if isinstance(found, str) and re.fullmatch(_SHARE_PATTERN, found) is None:
        raise ValueError(f"a number, or a share like 10%, is required, found {found!r}")
    return found


AmountOrShare = Annotated[
    Annotated[int, Field(ge=0, le=_MOST)] | str,
    AfterValidator(_is_share),
    Field(
        json_schema_extra={
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": True,
            "pattern": _SHARE_PATTERN,
            "minimum": 0,
            "maximum": _MOST,
            "maxLength": 4,
        }
    ),
]
