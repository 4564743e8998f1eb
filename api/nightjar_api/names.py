"""Names, keys and values as the Kubernetes API accepts them."""

from typing import Annotated

from pydantic import Field

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*"
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"

# A Service's name begins with a letter, and becomes the value of labels.
SERVICE_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
SERVICE_LENGTH = 63
SUBDOMAIN_PATTERN = f"^{_SUBDOMAIN}$"
KEY_PATTERN = f"^({_SUBDOMAIN}/)?{_NAME}$"
VALUE_PATTERN = f"^({_NAME})?$"
ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"

ObjectName = Annotated[str, Field(pattern=SUBDOMAIN_PATTERN, max_length=253)]
"""Of an object: a Secret, a claim, a class."""
Key = Annotated[str, Field(pattern=KEY_PATTERN, max_length=317)]
"""Of a label, a taint or an annotation."""
LabelValue = Annotated[str, Field(pattern=VALUE_PATTERN, max_length=63)]
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


def cel_keys(field: str, pattern: str, longest: int = 317) -> str:
    """The CEL expression for "every key of the map `field` matches": a schema has no pattern for keys."""
    return f"{field}.all(key, size(key) <= {longest} && key.matches('{pattern.replace(chr(92), chr(92) * 2)}'))"
