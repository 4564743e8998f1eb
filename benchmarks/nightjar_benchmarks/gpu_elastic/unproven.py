"""Elastic memory on GPUs is refused until its tests and its benchmark have run on one; they lift that for themselves.

Goes away with `nightjar_engine_patch.refusals.refuse_unproven`.
"""

from typing import Any


def lift() -> None:
    from nightjar_engine_patch import refusals

    rules: Any = refusals
    rules.refuse_unproven = lambda _: None
