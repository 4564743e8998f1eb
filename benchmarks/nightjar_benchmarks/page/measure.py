"""What the page weighs, how soon it shows, what it costs the sidecar."""

import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import httpx
from selenium.webdriver import Chrome

from nightjar_benchmarks.page.browser import browser
from nightjar_benchmarks.page.stage import Stage
from nightjar_benchmarks.records import Figure

_PAINTED = "return performance.getEntriesByName('first-contentful-paint').map((entry) => entry.startTime)"
_ASKED = "return performance.getEntriesByType('resource').length"
_PAINT_SECONDS = 60.0


def weight(there: Stage) -> Figure:
    """All that a browser loads before the first status."""
    answer = httpx.get(there.url, trust_env=False, timeout=60, headers={"Accept-Encoding": "identity"})
    size = len(answer.raise_for_status().content)
    return Figure(size / 1024, "KiB", {"bytes": size})


def first_paint(there: Stage, loads: int) -> Figure:
    """Median of first loads, each in a browser of its own: from navigation to the first contentful paint."""
    painted: list[float] = []
    for _ in range(loads):
        with browser() as chrome:
            chrome.get(there.url)
            painted.append(_until_painted(chrome))
    return Figure(median(painted), "ms", painted)


def cost(there: Stage, seconds: float, rounds: int) -> Figure:
    """The sidecar's processor time while a browser shows the page, less that while none does.

    Closed and open take turns, `rounds` times so many seconds each; what it is asked for costs the same whether the
    engine works or not, so the engine should not.
    """
    raw: list[dict[str, Any]] = []
    with browser() as chrome:
        for _ in range(rounds):
            chrome.get("about:blank")
            closed = _share(there.sidecar_pid, seconds)
            chrome.get(there.url)
            shown = _share(there.sidecar_pid, seconds)
            raw.append({"closed": closed, "open": shown, "asked": chrome.execute_script(_ASKED)})
    return Figure(median(each["open"] - each["closed"] for each in raw), "cores", raw)


def processor_seconds(pid: int) -> float:
    """Of all threads, in user and system mode (proc(5): fields 14 and 15, the name may hold blanks)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until_painted(chrome: Chrome) -> float:
    deadline = time.monotonic() + _PAINT_SECONDS
    while time.monotonic() < deadline:
        found: list[float] = chrome.execute_script(_PAINTED)
        if found:
            return found[0]
        time.sleep(0.05)
    raise RuntimeError(f"a first paint within {_PAINT_SECONDS:g} s is required, found none")


def _share(pid: int, seconds: float) -> float:
    begun, used = time.monotonic(), processor_seconds(pid)
    time.sleep(seconds)
    return (processor_seconds(pid) - used) / (time.monotonic() - begun)
