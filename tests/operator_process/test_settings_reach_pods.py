"""A changed planner setting reaches running pods, restarts nothing, and status says who obeys what."""

import pytest

from nightjar_benchmarks.ports import free_port
from nightjar_operator.kinds import NIGHTJAR_SERVICE
from nightjar_operator.pods import REFRESH_ANNOTATION


@pytest.fixture
async def two_pods(world, controllers):
    """Two pods that serve, whose sidecars obey what they are told to."""
    world.start()
    await world.create(replicas=2, engine={"port": free_port() - 1})
    async with world.sidecars(*await world.until_pods(2)) as sidecars:
        yield sidecars


async def wanted_revision(world):
    async def known():
        return (await world.status()).get("settingsRevision")

    return await world.until(known, "a settings revision")


async def test_in_step_when_every_sidecar_says_so(world, two_pods):
    two_pods.obeyed = await wanted_revision(world)
    await world.until_condition("SettingsSynced", ("True", "Synced"))
    await world.until_condition("Adaptive", ("True", "Planning"))
    status = await world.status()
    assert [pod["settingsRevision"] for pod in status["pods"]] == [status["settingsRevision"]] * 2
    assert status["speculation"]["gamma"] == "3"
    assert status["speculation"]["draftsOnGpu"] == "2/2"
    assert status["speculation"]["acceptancePercent"] == [81, 64, 52]
    assert status["speculation"]["tokensPerSecond"] == 1624


async def test_a_new_setting_touches_running_pods_and_restarts_none(world, two_pods):
    old = await wanted_revision(world)
    two_pods.obeyed = old
    await world.until_condition("SettingsSynced", ("True", "Synced"))
    before = {pod["metadata"]["uid"] for pod in await world.pods()}
    template = (await world.children())["Deployment", "chat"]["spec"]["template"]

    await world.edit(lambda found: found["spec"].update(planner={"switchCost": "12ms"}))

    async def touched():
        found = await world.pods()
        marks = [pod["metadata"].get("annotations", {}).get(REFRESH_ANNOTATION, "") for pod in found]
        return marks if all(mark and not mark.startswith(old) for mark in marks) else None

    marks = await world.until(touched, "every pod to be touched")

    async def other_revision():
        found = await wanted_revision(world)
        return found if found != old else None

    # The status says it after the pods were touched.
    new = await world.until(other_revision, "another settings revision")
    assert all(mark.startswith(f"{new}.") for mark in marks)
    await world.until_condition("SettingsSynced", ("False", "Propagating"))
    settings = (await world.children())["ConfigMap", "chat-settings"]["data"]["settings.json"]
    assert "12ms" in settings
    assert new in settings
    two_pods.obeyed = new
    await world.until_condition("SettingsSynced", ("True", "Synced"))
    assert {pod["metadata"]["uid"] for pod in await world.pods()} == before
    assert (await world.children())["Deployment", "chat"]["spec"]["template"] == template


async def test_figures_that_only_wobble_are_not_written(world, two_pods):
    two_pods.obeyed = await wanted_revision(world)
    await world.until_condition("Adaptive", ("True", "Planning"))
    await world.until_quiet()
    before = len(world.proxy.writes())
    asked = two_pods.asked

    async def asked_often():
        return two_pods.asked >= asked + 10

    await world.until(asked_often, "ten more answers of sidecars")
    assert world.proxy.writes()[before:] == []


async def test_the_status_written_is_the_status_stored(world, two_pods):
    """A field that the definition does not know would be dropped, and written again for ever."""
    two_pods.obeyed = await wanted_revision(world)
    await world.until_condition("SettingsSynced", ("True", "Synced"))
    await world.until_quiet()
    statuses = [call for call in world.proxy.writes() if call.resource == f"{NIGHTJAR_SERVICE.plural}/status"]
    asked = len(statuses)
    await world.edit(lambda found: found["metadata"].setdefault("annotations", {}).update(note="looked at again"))
    await world.until_quiet()
    statuses = [call for call in world.proxy.writes() if call.resource == f"{NIGHTJAR_SERVICE.plural}/status"]
    assert len(statuses) == asked
