"""The page at `/`: markup, style and script in one document that loads nothing else."""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Document:
    """What is served, and the policy that lets a browser run nothing but it."""

    body: bytes
    policy: str


@cache
def document() -> Document:
    style, script = _read("page.css"), _read("page.js")
    body = _read("page.html").replace("/* page.css */", style).replace("/* page.js */", script)
    return Document(
        body.encode(),
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'; img-src data:;"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    )


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
