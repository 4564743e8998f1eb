"""What the operator makes of a NightjarService, and keeps so."""

import asyncio

from nightjar_benchmarks.operator_figures.api_proxy import Call
from nightjar_operator.kinds import DEPLOYMENT, NIGHTJAR_SERVICE, Kind

CORE_SERVICE = Kind("", "v1", "Service", "services")
EVENT = Kind("events.k8s.io", "v1", "Event", "events")


async def test_a_service_gets_its_objects_and_a_status(world):
    world.start()
    await world.create()
    found = await world.until_children(3)
    assert set(found) == {("Deployment", "chat"), ("Service", "chat"), ("ConfigMap", "chat-settings")}
    await world.until_condition("Accepted", ("True", "Applied"))
    status = await world.status()
    assert status["observedGeneration"] == 1
    assert status["url"] == f"http://chat.{world.namespace}.svc/v1"
    assert {one["observedGeneration"] for one in status["conditions"]} == {1}


async def test_a_steady_service_is_not_written(world):
    world.start(resync_seconds=2.0)
    await world.create()
    await world.until_children(3)
    await world.until_quiet()
    before = len(world.proxy.writes())
    asked = len(world.proxy.calls)

    async def resynced_twice():
        lists = [call for call in world.proxy.calls[asked:] if (call.resource, call.verb) == ("deployments", "list")]
        return len(lists) >= 2

    await world.until(resynced_twice, "two more resyncs")
    assert world.proxy.writes()[before:] == []


async def test_a_restarted_operator_changes_nothing(world):
    world.start()
    await world.create()
    await world.until_children(3)
    await world.until_quiet()
    before = {name: one["metadata"]["resourceVersion"] for name, one in (await world.children()).items()}
    await world.stop()
    world.start()
    await world.until_quiet()
    after = {name: one["metadata"]["resourceVersion"] for name, one in (await world.children()).items()}
    assert after == before


async def test_what_somebody_edits_is_put_back_and_what_they_add_is_left(world):
    world.start()
    await world.create()
    port = (await world.until_children(3))["Service", "chat"]["spec"]["ports"][0]["port"]

    def edit(found):
        found["spec"]["ports"][0]["port"] = 4711
        found["metadata"]["annotations"] = {"example.com/team": "search"}

    await world.edit_object(CORE_SERVICE, "chat", edit)

    async def repaired():
        now = await world.admin.get(CORE_SERVICE, world.namespace, "chat")
        return now if [one["port"] for one in now["spec"]["ports"]] == [port] else None

    repaired = await world.until(repaired, "the port to be put back")
    assert repaired["metadata"]["annotations"] == {"example.com/team": "search"}


async def test_what_somebody_deletes_is_made_again(world):
    world.start()
    await world.create()
    found = await world.until_children(3)
    for kind, name in (("Deployment", "chat"), ("ConfigMap", "chat-settings")):
        gone = found[kind, name]
        table = {"Deployment": DEPLOYMENT, "ConfigMap": Kind("", "v1", "ConfigMap", "configmaps")}
        await world.admin.delete(table[kind], world.namespace, name, gone["metadata"]["uid"])

    async def made_again():
        now = await world.children()
        return len(now) == 3 and all(
            now[key]["metadata"]["uid"] != found[key]["metadata"]["uid"]
            for key in (("Deployment", "chat"), ("ConfigMap", "chat-settings"))
        )

    await world.until(made_again, "the deleted objects to be made again")


async def test_a_label_that_was_removed_comes_back(world):
    world.start()
    await world.create()
    await world.until_children(3)
    await world.edit_object(CORE_SERVICE, "chat", lambda found: found["metadata"].update(labels={}))

    async def labelled():
        now = await world.admin.get(CORE_SERVICE, world.namespace, "chat")
        return now["metadata"].get("labels", {}).get("nightjar.dev/service") == "chat"

    await world.until(labelled, "the label to come back")


async def test_what_the_spec_no_longer_asks_for_is_deleted(world):
    world.start()
    await world.create()
    await world.until_children(3)
    await world.edit(lambda found: found["spec"].pop("draft"))
    found = await world.until_children(2)
    assert ("ConfigMap", "chat-settings") not in found


async def test_deletion_leaves_nothing_and_needs_no_operator(world, controllers):
    world.start()
    created = await world.create()
    await world.until_children(3)
    await world.kill()
    await world.admin.delete(NIGHTJAR_SERVICE, world.namespace, "chat", created["metadata"]["uid"])

    async def gone():
        return not await world.children() and not await world.pods()

    await world.until(gone, "everything to be gone")
    assert await world.admin.get(NIGHTJAR_SERVICE, world.namespace, "chat") is None


async def test_an_object_of_somebody_else_is_never_taken(world):
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": world.namespace},
        "spec": {"ports": [{"port": 80}], "selector": {"app": "theirs"}},
    }
    await world.admin.create(CORE_SERVICE, world.namespace, foreign)
    world.start()
    await world.create()
    await world.until_condition("Accepted", ("False", "NameTaken"))
    found = await world.admin.get(CORE_SERVICE, world.namespace, "chat")
    assert found["spec"]["selector"] == {"app": "theirs"}


async def test_every_change_of_a_condition_is_told_once(world):
    world.start()
    await world.create()
    await world.until_children(3)
    await world.until_quiet()
    await world.edit(lambda found: found["spec"].pop("draft"))
    await world.until_condition("SettingsSynced", ("True", "NothingToPlan"))
    await world.until_quiet()
    events = (await world.admin.list(EVENT, world.namespace, "")).items
    told = [one["reason"] for one in events if one.get("action") == "SettingsSyncedTrue"]
    assert told == ["NothingToPlan"]


async def test_a_service_being_deleted_is_left_alone(world):
    world.start()
    body = await world.create()
    await world.until_children(3)
    await world.edit(lambda found: found["metadata"].update(finalizers=["example.com/hold"]))
    await world.admin.delete(NIGHTJAR_SERVICE, world.namespace, "chat", body["metadata"]["uid"])
    await world.until_quiet()
    found = (await world.children())["Service", "chat"]
    await world.admin.delete(CORE_SERVICE, world.namespace, "chat", found["metadata"]["uid"])
    await asyncio.sleep(0)
    await world.until_quiet()
    assert ("Service", "chat") not in await world.children()
    await world.edit(lambda found: found["metadata"].update(finalizers=[]))


async def test_an_operator_of_one_namespace_leaves_others_alone(world):
    world.start()
    await world.create()
    await world.until_children(3)
    elsewhere = {call.namespace for call in world.proxy.calls} - {world.namespace}
    assert elsewhere == set()
    assert Call("", "pods", "watch", world.namespace) in world.proxy.calls
