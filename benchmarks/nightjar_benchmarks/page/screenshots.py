"""`python -m nightjar_benchmarks.page.screenshots`: pictures of the page and of `nightjar top`."""

import io
import sys
import time
from pathlib import Path
from typing import Annotated

import httpx
import typer
from rich.console import Console
from selenium.webdriver import Chrome

from nightjar_benchmarks.page.browser import NoBrowserError, browser, look
from nightjar_benchmarks.page.stage import stage
from nightjar_benchmarks.stopping import interrupted_by_signals
from nightjar_operator.top.reading import reading
from nightjar_operator.top.view import Seen, one

_LOOKS = {
    "wide": (1280, 900, "light"),
    "wide-dark": (1280, 900, "dark"),
    "phone": (390, 844, "light"),
    "phone-dark": (390, 844, "dark"),
}


def main(
    out: Annotated[Path, typer.Option(help="Where the pictures go.")] = Path("out/screenshots"),
    seconds: Annotated[float, typer.Option(help="How long the load runs before the pictures.")] = 40.0,
) -> None:
    """Take pictures of the page before there is an engine, while it serves, after it has gone; and of a terminal."""
    console = Console(highlight=False)
    out.mkdir(parents=True, exist_ok=True)
    try:
        with interrupted_by_signals(), browser() as chrome, stage() as there:
            chrome.get(there.url)
            time.sleep(2)
            _take(chrome, out, "empty", ("wide", "phone-dark"))
            with there.engine():
                time.sleep(seconds)
                _take(chrome, out, "serving", tuple(_LOOKS))
                _take_terminal(chrome, out, there.url)
                time.sleep(3)
            time.sleep(3)
            _take(chrome, out, "engine-away", ("wide",))
    except NoBrowserError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error {error}")
        sys.exit(1)
    for path in sorted(out.glob("*.png")):
        console.print(str(path), soft_wrap=True)


def _take(chrome: Chrome, out: Path, what: str, looks: tuple[str, ...]) -> None:
    for name in looks:
        width, height, scheme = _LOOKS[name]
        look(chrome, width, height, scheme)
        # The whole page, however long.
        height = chrome.execute_script("return document.documentElement.scrollHeight")
        look(chrome, width, height, scheme)
        chrome.save_screenshot(str(out / f"{what}-{name}.png"))


def _take_terminal(chrome: Chrome, out: Path, url: str) -> None:
    found = httpx.get(f"{url}status", trust_env=False, timeout=60).raise_for_status().json()
    console = Console(width=100, record=True, file=io.StringIO(), force_terminal=True)
    console.print(one(Seen("127.0.0.1:8001", reading(found)), console.width))
    document = out / "top.html"
    document.write_text(console.export_html(inline_styles=True), encoding="utf-8")
    look(chrome, 1000, 600, "light")
    chrome.get(document.resolve().as_uri())
    chrome.save_screenshot(str(out / "top.png"))
    document.unlink()
    chrome.get(url)


if __name__ == "__main__":
    typer.run(main)
