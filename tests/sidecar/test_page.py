"""The page as a person sees it: a real Chromium, the real sidecar, a double of the engine."""

import asyncio
import itertools
import json
import re
from contextlib import asynccontextmanager
from importlib.resources import files

import httpx
import pytest
from aiohttp import web

from nightjar_api.engine.v1 import engine_pb2
from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings, dump
from nightjar_benchmarks.page.browser import NoBrowserError, browser, look
from nightjar_benchmarks.ports import free_port
from nightjar_sidecar import loop
from nightjar_sidecar.page.document import document

_TEXT = """
    const element = document.querySelector(arguments[0]);
    return element?.checkVisibility() ? element.innerText : "";
"""
DEADLINE = 120
SIZES = {"block_bytes": 4 << 20, "draft_block_bytes": 1 << 20, "draft_weight_bytes": 100 << 20, "blocks": 100}


@pytest.fixture(scope="module")
def chrome():
    try:
        with browser() as made:
            yield made
    except NoBrowserError as error:
        pytest.skip(str(error))


class Seen:
    """The page in Chromium; every look is in a thread, for the sidecar serves in this one."""

    def __init__(self, chrome):
        self._chrome = chrome

    async def open(self, url, width=1280, height=900, scheme="light"):
        await asyncio.to_thread(look, self._chrome, width, height, scheme)
        await asyncio.to_thread(self._chrome.get, url)

    async def text(self, selector="body"):
        """What can be seen of the first element of it."""
        return await asyncio.to_thread(self._chrome.execute_script, _TEXT, selector)

    async def run(self, script):
        return await asyncio.to_thread(self._chrome.execute_script, f"return {script}")

    async def tree(self):
        found = await asyncio.to_thread(self._chrome.execute_cdp_cmd, "Accessibility.getFullAXTree", {})
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in found["nodes"]
            if not node["ignored"]
        ]

    async def until(self, selector, wanted):
        """Look until the element shows a text that matches."""
        found = None
        try:
            async with asyncio.timeout(DEADLINE):
                while not re.search(wanted, found := await self.text(selector)):  # noqa: ASYNC110 - there is only the page
                    await asyncio.sleep(0.05)
        except TimeoutError:
            pytest.fail(f"{selector}: {wanted!r} is required, found {found!r}")
        return found

    async def until_true(self, script):
        async with asyncio.timeout(DEADLINE):
            while not await self.run(script):  # noqa: ASYNC110 - there is only the page
                await asyncio.sleep(0.05)

    async def log(self):
        return await asyncio.to_thread(self._chrome.get_log, "browser")


@pytest.fixture
def seen(chrome):
    chrome.get("about:blank")
    chrome.get_log("browser")
    return Seen(chrome)


@pytest.fixture
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")
    (folder / "config").mkdir()
    write(folder / "config" / "settings.json", "one")
    return folder / "config" / "settings.json", folder / "e.sock"


def write(path, revision, **planner):
    fresh = path.with_name("fresh")
    planner = {"policy": "nightjar", "buckets": [1, 8, 64]} | planner
    fresh.write_text(dump(SidecarSettings(revision=revision, planner=PlannerSpec(**planner))))
    fresh.replace(path)


@asynccontextmanager
async def sidecar(paths, port=0):
    """Serves; gives the page's address."""
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    options = loop.Options(paths[1], paths[0], "127.0.0.1", port)
    task = asyncio.create_task(loop.run(options, stop, listening.set_result))
    try:
        yield f"http://127.0.0.1:{await asyncio.wait_for(listening, DEADLINE)}/"
    finally:
        stop.set()
        async with asyncio.timeout(DEADLINE):
            await task


async def play(engine, steps, **report):
    await engine.until(lambda e: e.streams)
    for _ in range(steps):
        engine.step(**report)
        await asyncio.sleep(0)


async def test_before_there_is_an_engine_or_a_step_the_page_says_what_it_waits_for(seen, paths, serving, engine_double):
    async with sidecar(paths) as url:
        await seen.open(url)
        await seen.until("#empty", "No engine yet")
        await seen.until("#trouble", "Not steering the engine: the engine is not connected")
        assert await seen.text("#live") == "Not steering"
        assert await seen.text("#now") == ""
        async with serving(engine_double(**SIZES), paths[1]) as engine:
            await seen.until("#empty", "No step yet. Send the engine a request")
            assert await seen.text("#now") == ""
            await play(engine, 1, batch=5)
            await seen.until("#now", "Requests running\n5")
            for note in ("#empty", "#trouble"):
                await seen.until(note, "^$")
            await seen.until("#live", "^Live$")


async def test_the_page_follows_the_engine_without_being_loaded_again(seen, paths, serving, engine_double):
    async with serving(engine_double(**SIZES), paths[1]) as engine, sidecar(paths) as url:
        await seen.open(url)
        await play(engine, 60, batch=4, waiting=2)
        await seen.until("#now", "Requests running\n4\n2 waiting")
        assert await seen.text("#model") == "t + d"
        await seen.until("#regret", r"^As it believes, the lengths of late cost \d+\.\d % of decoding time beyond")
        # Everything is accepted and drafting is cheap: the longest length.
        row = await seen.until("tr[aria-current]", r"(?s)2–8\nγ 3.* ✓")
        assert re.search(r"\d rounds", row)
        # The plan holds something for the batches that were not served yet, and says that they were not.
        for other in ("1", "3"):
            unserved = await seen.text(f"#arms tbody tr:nth-child({other})")
            assert re.search(r"\nγ 3", unserved)
            assert unserved.count("○") == 1
            assert "✓" not in unserved
        memory = await seen.text("#memory")
        assert "Target's KV cache\n300 MiB · 60 %" in memory
        assert "Draft's KV cache\n100 MiB · 20 %" in memory
        assert "Draft's weights (on device)\n100 MiB · 20 %" in memory
        await play(engine, 3, batch=20)
        await seen.until("#now", "Requests running\n20")
        assert "9–64" in await seen.text("tr[aria-current]")
        await play(engine, 1, batch=20, draft_residency=engine_pb2.DRAFT_RESIDENCY_AWAY)
        away = await seen.until("#memory", r"Draft's weights \(away\)\n0 B")
        assert "Target's KV cache\n300 MiB · 100 %" in away
        write(paths[0], "two", switch_cost="12ms")
        await seen.until("#switching", "Set in the settings\n12 ms")
        write(paths[0], "three", policy="fixed")
        # It believes nothing.
        await seen.until("#regret", "^$")
        happened = await seen.text("#happened")
        assert "revision two is in force" in happened
        assert "the draft is away: the KV cache has its memory" in happened
        assert "engine\nconnected" in happened


async def test_when_the_sidecar_goes_the_page_says_so_and_comes_back_with_it(seen, paths, serving, engine_double):
    port = free_port()
    async with serving(engine_double(**SIZES), paths[1]) as engine:
        async with sidecar(paths, port) as url:
            await seen.open(url)
            await play(engine, 1, batch=4)
            await seen.until("#now", "Requests running\n4")
            await seen.until("#live", "^Live$")
        await seen.until("#live", "Disconnected, as of .*; trying again")
        # What was seen last stays, and is marked.
        assert "Requests running\n4" in await seen.text("#now")
        assert await seen.run("document.getElementById('now').classList.contains('old')")
        async with sidecar(paths, port):
            await seen.until("#live", "^Live$")
            await engine.until(lambda e: len(e.streams) == 2)
            await play(engine, 1, batch=7)
            await seen.until("#now", "Requests running\n7")
            assert not await seen.run("document.getElementById('now').classList.contains('old')")


async def test_an_engine_that_goes_leaves_its_numbers_marked_as_old(seen, paths, serving, engine_double):
    async with sidecar(paths) as url:
        async with serving(engine_double(**SIZES), paths[1]) as engine:
            await seen.open(url)
            await play(engine, 1, batch=4)
            await seen.until("#now", "Requests running\n4")
        await seen.until("#trouble", "Not steering the engine")
        assert await seen.run("document.getElementById('now').classList.contains('old')")
        assert await seen.text("#live") == "Not steering"
        # No plan is in force, so none is held.
        plan = await seen.text("#arms")
        assert plan.count("no plan") == 3
        assert not set(plan) & {"✓", "○"}


async def test_it_loads_nothing_but_status_and_logs_no_error(seen, paths, serving, engine_double):
    async with serving(engine_double(**SIZES), paths[1]) as engine, sidecar(paths) as url:
        await seen.open(url)
        await play(engine, 1, batch=4)
        await seen.until("#now", "Requests running\n4")
        loaded = await seen.run("performance.getEntriesByType('resource').map((entry) => entry.name)")
        assert set(loaded) == {f"{url}status"}
        assert await seen.log() == []


async def test_a_tab_that_nobody_looks_at_asks_nothing(seen, paths):
    async with sidecar(paths) as url:
        await seen.open(url)
        await seen.until("#empty", "No engine yet")
        # Counted when they begin: what is under way while the tab is hidden was asked before.
        await seen.run(
            "window.asked = 0, window.fetch = ((ask) => (...given) => (window.asked++, ask(...given)))(window.fetch), 0"
        )
        await seen.until_true("window.asked >= 2")
        await seen.run("Object.defineProperty(document, 'hidden', {get: () => true, configurable: true}), 0")
        asked = await seen.run("window.asked")
        await asyncio.sleep(3.3)
        assert await seen.run("window.asked") == asked
        await seen.run("delete document.hidden")
        await seen.until_true(f"window.asked > {asked}")


async def test_names_that_look_like_markup_are_shown_as_they_are(seen, paths, serving, engine_double):
    name = "<img src=x onerror=document.title='run'>"
    async with serving(engine_double(target_model=name), paths[1]), sidecar(paths) as url:
        await seen.open(url)
        await seen.until("#model", re.escape(name))
        assert await seen.run("document.title") == "Nightjar"


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone_and_follows_the_dark(seen, paths, serving, engine_double, width, scheme):
    async with serving(engine_double(**SIZES), paths[1]) as engine, sidecar(paths) as url:
        await seen.open(url, width=width, scheme=scheme)
        await play(engine, 30, batch=4)
        await seen.until("#now", "Requests running\n4")
        assert await seen.run("document.documentElement.scrollWidth") <= width
        red = await seen.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
        assert (int(red) < 64) == (scheme == "dark")


async def test_a_phone_shows_lengths_up_to_five_without_scrolling(seen, paths, serving, engine_double):
    async with serving(engine_double(gamma_max=5, **SIZES), paths[1]) as engine, sidecar(paths) as url:
        await seen.open(url, width=390)
        await play(engine, 30, batch=4)
        await seen.until("#arms", "γ = 5")
        assert await seen.run(
            "[...document.querySelectorAll('.scroll')].every((box) => box.scrollWidth <= box.clientWidth)"
        )


async def test_without_an_engine_what_happened_takes_the_whole_width(seen, paths):
    async with sidecar(paths) as url:
        await seen.open(url, width=1280)
        await seen.until("#happened", "away")
        width = "document.getElementById('{}').getBoundingClientRect().width"
        assert await seen.run(width.format("happened")) == await seen.run(width.format("empty"))


async def test_parts_of_memory_differ_by_more_than_colour(seen, paths, serving, engine_double):
    async with serving(engine_double(**SIZES), paths[1]) as engine, sidecar(paths) as url:
        await seen.open(url)
        await play(engine, 1, batch=4)
        await seen.until("#memory", "Target's")
        patterns = await seen.run(
            "[...document.querySelectorAll('#bar span')].map((part) => getComputedStyle(part).backgroundImage)"
        )
        # Up to the colours in them.
        assert len({re.sub(r"rgba?\([^)]*\)", "", pattern) for pattern in patterns}) == 3


async def test_who_cannot_see_it_finds_headings_and_names(seen, paths, serving, engine_double):
    async with serving(engine_double(**SIZES), paths[1]) as engine, sidecar(paths) as url:
        await seen.open(url)
        await play(engine, 30, batch=4)
        await seen.until("tr[aria-current]", "✓")
        tree = await seen.tree()
    headings = [name for role, name in tree if role == "heading"]
    assert headings[0].startswith("Nightjar")
    assert len(headings) == 7
    for role, name in tree:
        if role in {"image", "img", "table", "region", "link", "columnheader", "rowheader"}:
            assert name, f"a {role} without a name"
    assert ("image", "held by the plan") in tree
    assert any(role == "image" and name.startswith("Target's KV cache: 300 MiB") for role, name in tree)
    assert any(role == "status" for role, _ in tree)


async def test_behind_a_proxys_path_a_status_it_does_not_understand_is_told_not_swallowed(seen):
    async def page(_request):
        return web.Response(body=document().body, content_type="text/html")

    async def status(_request):
        return web.json_response({"engine": {}})

    app = web.Application()
    app.add_routes([web.get("/pods/x:1/proxy/", page), web.get("/pods/x:1/proxy/status", status)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await seen.open(f"http://127.0.0.1:{runner.addresses[0][1]}/pods/x:1/proxy/")
        await seen.until("#trouble", "This page cannot show what the sidecar says: TypeError")
    finally:
        await runner.cleanup()


async def test_the_browser_is_told_to_run_nothing_but_the_page(paths):
    async with sidecar(paths) as url, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(url)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert len(answer.content) <= 150 * 1024


def test_texts_stand_out_from_what_is_behind_them():
    css = (files("nightjar_sidecar.page") / "page.css").read_text()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#\w+)", block)) for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    )
    for colours in (light, dark):
        texts = ("text", "soft", "first", "bad", "good")
        for text, back in itertools.product(texts, ("back", "raised")):
            assert contrast(colours[text], colours[back]) >= 4.5, json.dumps((text, back))


def contrast(one, other):
    """WCAG's ratio."""
    bright, dim = sorted(map(luminance, (one, other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
