"""A real Chromium without a window, from the system's packages."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

# The last four keep it from calling anybody: tests and figures need no network.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoBrowserError(Exception):
    """The message says how to get one."""


@contextmanager
def browser() -> Iterator[Chrome]:
    """With an empty profile; NoBrowserError when none is installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        missing = " and ".join(name for name, path in (("chromium", chromium), ("chromedriver", driver)) if not path)
        raise NoBrowserError(
            f"a Chromium with its driver is required, found no {missing} on PATH;"
            " on Debian: apt-get install chromium chromium-driver"
        )
    options = ChromeOptions()
    options.binary_location = chromium
    # It waits for what the page loads, which is nothing.
    options.page_load_strategy = "normal"
    with tempfile.TemporaryDirectory(prefix="nj-chromium-", ignore_cleanup_errors=True) as profile:
        for flag in (*_FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        chrome = Chrome(options=options, service=ChromeService(driver))
        try:
            yield chrome
        finally:
            chrome.quit()


def look(chrome: Chrome, width: int, height: int, scheme: str, scale: float = 1) -> None:
    """Show pages in a window of so many CSS pixels, "light" or "dark"."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
