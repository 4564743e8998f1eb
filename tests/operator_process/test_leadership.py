"""Of several operators one works; another takes over when it ends, and nothing is done twice."""

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from nightjar_benchmarks.ports import free_port
from nightjar_operator.kinds import LEASE
from nightjar_operator.process import LeaseLostError


async def holder(world):
    found = await world.admin.get(LEASE, world.namespace, "leader")
    return None if found is None else found["spec"].get("holderIdentity")


async def watches(port):
    try:
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


async def exposed(port):
    """What an operator's metrics without labels are."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as answer:
        families = text_string_to_metric_families(await answer.text())
        return {one.name: one.value for family in families for one in family.samples if not one.labels}


async def test_the_second_waits_and_takes_over_at_once_when_the_first_ends(world):
    lease = (world.namespace, "leader")
    first = world.start(lease=lease, identity="first")

    async def led_by(name):
        return await holder(world) == name

    await world.until(lambda: led_by("first"), "the first to lead")
    world.start(lease=lease, identity="second")
    await world.create()
    await world.until_children(3)
    assert await holder(world) == "first"

    first.set()
    await world.operators[0][0]
    assert await holder(world) in ("", "second")
    await world.until(lambda: led_by("second"), "the second to lead")
    await world.edit(lambda found: found["spec"].update(replicas=2))

    async def scaled():
        return (await world.children())["Deployment", "chat"]["spec"]["replicas"] == 2

    await world.until(scaled, "the second to work")


async def test_one_that_stands_by_sees_services_and_lets_none_wait(world):
    lease, port = (world.namespace, "leader"), free_port()
    world.start(lease=lease, identity="first")

    async def led():
        return await holder(world) == "first"

    await world.until(led, "the first to lead")
    world.start(lease=lease, identity="second", port=port)
    await world.until(lambda: watches(port), "the second to watch")
    await world.create()

    async def seen():
        return (await exposed(port))["nightjar_operator_services"] == 1

    await world.until(seen, "the second to see the service")
    found = await exposed(port)
    assert (found["nightjar_operator_leader"], found["nightjar_operator_queue_depth"]) == (0, 0)


async def test_one_whose_lease_is_taken_ends_and_says_so(world):
    world.start(lease=(world.namespace, "leader"), identity="first")

    async def led():
        return await holder(world) == "first"

    await world.until(led, "the first to lead")
    await world.edit_object(LEASE, "leader", lambda found: found["spec"].update(holderIdentity="thief"))
    ((task, _),) = world.operators
    with pytest.raises(LeaseLostError, match="another takes over"):
        await task
    assert await holder(world) == "thief"
