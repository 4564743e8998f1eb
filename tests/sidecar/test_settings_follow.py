"""The settings file on a real file system: written in place, renamed over, swapped as a ConfigMap."""

import asyncio
import os
from contextlib import aclosing, asynccontextmanager

import pytest

from nightjar_api.errors import ConfigurationError
from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings, dump, load
from nightjar_sidecar.settings_file import follow


def text(revision, **planner):
    return dump(SidecarSettings(revision=revision, planner=PlannerSpec(**planner)))


def rename_over(path, content):
    fresh = path.with_name("fresh")
    fresh.write_text(content)
    fresh.replace(path)


@asynccontextmanager
async def following(path):
    """Gives a function that waits for the next outcome."""
    async with aclosing(follow(path, load(path))) as outcomes:

        async def following_outcome():
            async with asyncio.timeout(120):
                return await anext(outcomes)

        yield following_outcome


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "settings.json"
    path.write_text(text("one"))
    return path


async def after(change, outcome):
    """What is read once `change` has happened; it happens only when the watch stands."""
    waiting = asyncio.create_task(outcome())
    await asyncio.sleep(0.3)
    change()
    return await waiting


async def test_a_file_written_in_place_is_noticed(path):
    async with following(path) as outcome:
        found = await after(lambda: path.write_text(text("two")), outcome)
        # Who looks while it is written finds a part of it.
        while isinstance(found, ConfigurationError):
            found = await outcome()
        assert found.revision == "two"


async def test_an_atomic_rename_is_noticed_again_and_again(path):
    async with following(path) as outcome:
        for revision in ("two", "three"):
            assert (await after(lambda r=revision: rename_over(path, text(r)), outcome)).revision == revision


async def test_a_config_map_swap_is_noticed(tmp_path):
    def publish(name, content):
        (tmp_path / name).mkdir()
        (tmp_path / name / "settings.json").write_text(content)
        (tmp_path / "..data_tmp").symlink_to(name)
        os.replace(tmp_path / "..data_tmp", tmp_path / "..data")  # noqa: PTH105 - what the kubelet does

    publish("..one", text("one"))
    path = tmp_path / "settings.json"
    path.symlink_to("..data/settings.json")
    async with following(path) as outcome:
        for revision in ("two", "three"):
            assert (await after(lambda r=revision: publish(f"..{r}", text(r)), outcome)).revision == revision


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("{", "Invalid JSON"),
        ('{"revision": "x", "planner": {"gammaMax": 99}}', "gamma"),
        (None, "readable settings file"),
    ],
)
async def test_a_bad_file_is_an_error_once_and_a_good_one_heals(path, bad, message):
    async with following(path) as outcome:
        error = await after(lambda: path.unlink() if bad is None else rename_over(path, bad), outcome)
        assert isinstance(error, ConfigurationError)
        assert message in str(error)
        assert (await after(lambda: rename_over(path, text("two")), outcome)).revision == "two"


async def test_the_same_settings_written_again_are_no_news(path):
    async with following(path) as outcome:
        waiting = asyncio.create_task(outcome())
        await asyncio.sleep(0.3)
        rename_over(path, text("one"))
        await asyncio.sleep(0.3)
        rename_over(path, text("two"))
        assert (await waiting).revision == "two"


async def test_a_folder_made_anew_is_found_again(tmp_path):
    folder = tmp_path / "mounted"
    folder.mkdir()
    path = folder / "settings.json"
    path.write_text(text("one"))
    async with following(path) as outcome:

        def remount():
            path.unlink()
            folder.rmdir()
            folder.mkdir()
            path.write_text(text("two"))

        assert (await after(remount, outcome)).revision == "two"
