"""Nightjar's three images: which Dockerfile on which base, and what they are called."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

REGISTRY = "localhost"


@dataclass(frozen=True)
class Part:
    """One image of Nightjar's."""

    name: str
    dockerfile: str
    """Below the repository."""
    base: str
    """The one it is built on here: `debian` or `vllm-cpu`."""
    extra: str
    """Of the distribution, for what it needs beside vLLM; empty: nothing more."""

    @property
    def extras(self) -> str:
        return f"[{self.extra}]" if self.extra else ""


PARTS = (
    Part("operator", "operator/Dockerfile", "debian", "operator"),
    Part("sidecar", "sidecar/Dockerfile", "debian", "sidecar"),
    Part("engine", "engine_patch/Dockerfile", "vllm-cpu", ""),
)


def reference(name: str, inputs: Sequence[bytes]) -> str:
    """What an image of `inputs` is called: other inputs, another tag."""
    found = hashlib.sha256()
    for part in inputs:
        # With its length, so that no two lists of inputs read alike.
        found.update(f"{len(part)} ".encode() + part)
    return f"{REGISTRY}/nightjar-{name}:{found.hexdigest()[:12]}"


def pinned(image: str, digest: str) -> str:
    """By its content: a builder takes no other image for it, whatever bears its tag."""
    return f"{image.rpartition(':')[0]}@{digest}"


@dataclass(frozen=True)
class Images:
    """References of the three, as manifests name them."""

    operator: str
    sidecar: str
    engine: str

    @classmethod
    def of(cls, references: Mapping[str, str]) -> "Images":
        return cls(**{part.name: references[part.name] for part in PARTS})

    def all(self) -> tuple[str, ...]:
        return (self.operator, self.sidecar, self.engine)

    def values(self) -> dict[str, Any]:
        """Of the chart, so that it installs these."""
        named = {part.name: _image_value(getattr(self, part.name)) for part in PARTS}
        return {"images": {"registry": REGISTRY, **named}}


def _image_value(image: str) -> dict[str, str]:
    repository, _, tag = image.removeprefix(f"{REGISTRY}/").rpartition(":")
    return {"repository": repository, "tag": tag}
