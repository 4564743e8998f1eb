"""Leaving nothing behind when somebody stops a benchmark."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_ALL_SIGNALS = (signal.SIGINT, *_SIGNALS)


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP act as Ctrl-C: pods have sessions of their own and would outlive us otherwise."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Inside, nobody can stop us: for the seconds that ending what we started takes."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ALL_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
