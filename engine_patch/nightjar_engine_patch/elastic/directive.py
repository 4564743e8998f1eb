"""What the scheduler tells workers about the memory, and what they answer.

A directive rides on the scheduler's output: every worker obeys it before that step and behind all earlier ones,
whatever is in flight, and the ids in the same output are already those after it.
"""

from dataclasses import dataclass

Move = tuple[int, int]


@dataclass(frozen=True)
class ExpandDirective:
    """The draft leaves; its memory goes to the target's KV."""


@dataclass(frozen=True)
class SqueezeDirective:
    """Blocks move, (old, new) each, then the draft gets its memory back."""

    moves: tuple[Move, ...]


Directive = ExpandDirective | SqueezeDirective


@dataclass(frozen=True, slots=True)
class Obeyed:
    """A directive is carried out."""

    blocks: int
    """KV blocks there are now."""
    moved_bytes: int
    """Memory that changed hands."""
