"""What goes wrong around the operator: it converges, and loses nothing."""

import asyncio
import getpass

from nightjar_benchmarks.operator_figures.api_proxy import WRITES, Interruption
from nightjar_operator.kinds import DEPLOYMENT


async def replicas(world):
    return (await world.children())["Deployment", "chat"]["spec"]["replicas"]


async def test_an_api_server_that_was_away_is_caught_up_with(world):
    world.start()
    await world.create()
    found = await world.until_children(3)
    await world.until_quiet()
    await world.proxy.down()
    # Nobody is told of either while the API server is away.
    await world.edit(lambda found: found["spec"].update(replicas=3))
    gone = found["Deployment", "chat"]
    await world.admin.delete(DEPLOYMENT, world.namespace, "chat", gone["metadata"]["uid"])
    await world.proxy.up()

    async def caught_up():
        now = (await world.children()).get(("Deployment", "chat"))
        return now is not None and now["spec"]["replicas"] == 3

    await world.until(caught_up, "the Deployment to be made again with 3 replicas")


async def test_watches_that_are_cut_are_taken_up_again(world):
    world.start()
    await world.create()
    await world.until_children(3)
    await world.until_quiet()
    for count in (2, 3):
        world.proxy.cut()
        await world.edit(lambda found, count=count: found["spec"].update(replicas=count))

        async def scaled(count=count):
            return await replicas(world) == count

        await world.until(scaled, f"{count} replicas")


async def test_watches_whose_place_is_gone_begin_anew(world):
    world.start()
    await world.create()
    found = await world.until_children(3)
    await world.until_quiet()
    asked = len(world.proxy.calls)
    world.proxy.gone = True
    world.proxy.cut()

    async def refused():
        return ("deployments", "watch") in [(call.resource, call.verb) for call in world.proxy.calls[asked:]]

    await world.until(refused, "a watch that is refused")
    gone = found["Deployment", "chat"]
    await world.admin.delete(DEPLOYMENT, world.namespace, "chat", gone["metadata"]["uid"])
    world.proxy.gone = False

    async def made_again():
        now = (await world.children()).get(("Deployment", "chat"))
        return now is not None and now["metadata"]["uid"] != gone["metadata"]["uid"]

    await world.until(made_again, "the Deployment to be made again")


async def test_killed_at_every_step_of_a_rollout_it_converges(world):
    """Killed at its first write, the next at its second, and so on: the outcome is that of an undisturbed one."""
    world.start()
    await world.create("undisturbed", replicas=1)
    await world.until_children(3)
    await world.edit(_rollout, "undisturbed")

    async def rolled(name):
        found = (await world.children()).get(("Deployment", name))
        return found if found is not None and found["spec"]["replicas"] == 2 else None

    expected = await world.until(lambda: rolled("undisturbed"), "the rollout")
    await world.until_quiet()
    await world.kill()

    await world.create(replicas=1)
    created = await _kill_at_every_write(world, "after")
    await world.edit(_rollout)
    rolled_out = await _kill_at_every_write(world, "before")
    world.start()
    found = await world.until(lambda: rolled("chat"), "the rollout of what was killed again and again")
    await world.until_quiet()
    # Two services of three objects each are applied by every start, and the statuses come after.
    assert min(created, rolled_out) >= 6
    assert _shape(found) == _shape(expected)
    assert len(await world.children()) == 6


def _rollout(found):
    found["spec"].update(replicas=2, engine={"args": ["--seed", "1"]}, planner={"switchCost": "12ms"})


async def _kill_at_every_write(world, moment):
    """Gives how many writes there were to be killed at; the last start had fewer, and was left in peace."""
    number = 1
    while await _kill_at_write(world, moment, number):
        number += 1
    return number - 1


async def _kill_at_write(world, moment, number):
    """Start an operator and kill it at this write, before the API hears of it or after; False: it had fewer."""
    count = 0
    reached = asyncio.Event()

    async def hold(call):
        nonlocal count
        if call.verb in WRITES:
            count += 1
            if count >= number:
                reached.set()
                raise Interruption

    async def at_rest():
        async def began():
            return count > 0

        await world.until(began, "a first write")
        await world.until_quiet()

    setattr(world.proxy, moment, hold)
    world.start()
    waits = [asyncio.ensure_future(reached.wait()), asyncio.ensure_future(at_rest())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    await world.kill()
    for wait in waits:
        wait.cancel()
    setattr(world.proxy, moment, None)
    return reached.is_set()


def _shape(deployment):
    """What two Deployments of equal services have in common."""
    template = deployment["spec"]["template"]["spec"]
    engine = template["containers"][0]
    return (deployment["spec"]["replicas"], engine["args"] if "args" in engine else engine["command"][-2:])


async def test_a_user_without_a_name_can_watch(world, monkeypatch, caplog):
    """An image knows no user of the number that it runs as."""

    def unknown():
        raise KeyError("getpwuid(): uid not found: 10001")

    monkeypatch.setattr(getpass, "getuser", unknown)
    world.start()
    await world.until_quiet()
    await world.create()
    await world.until_children(3)
    assert "watching ended" not in caplog.text
