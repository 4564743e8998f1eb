"""What the operator asks of the API server, and what it is allowed to."""

import itertools

from nightjar_operator.kinds import CHILDREN

# Granted, and not seen as a request: the server asks for `create` when an apply makes an object, and clusters that
# check owner references for the last.
IMPLIED = {(kind.group, kind.plural, "create") for kind in CHILDREN} | {
    ("nightjar.dev", "nightjarservices/finalizers", "update")
}
# Kinds whose definition this API server lacks are asked for once and not again.
ABSENT = {"monitoring.coreos.com"}


def granted(rules):
    return {
        asked
        for rule in rules["rules"] + rules["lease"]
        for asked in itertools.product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }


async def test_it_asks_for_what_it_is_granted_and_for_all_of_it(world, rules, controllers):
    """A whole life: made, edited, touched, scaled, cleaned up. The fixture grants exactly the rules."""
    lease = (world.namespace, "leader")
    world.start(lease=lease)
    everything = {
        "autoscaling": {"maxReplicas": 3},
        "cache": {"size": "1Gi", "accessMode": "ReadWriteMany"},
        "disruption": {"maxUnavailable": 1},
    }
    await world.create(replicas=1, **everything)
    made = await world.until_children(6)
    for kind in CHILDREN:
        # Looked for when it is missing from what is watched.
        for (name, instance), found in made.items():
            if name == kind.name:
                await world.admin.delete(kind, world.namespace, instance, found["metadata"]["uid"])
    await world.until_children(6)
    pod = (await world.until_pods(1))[0]
    async with world.sidecars(pod) as sidecars:
        sidecars.obeyed = "older"
        await world.until_condition("SettingsSynced", ("False", "Propagating"))

        async def touched():
            return any((call.resource, call.verb) == ("pods", "patch") for call in world.proxy.calls)

        await world.until(touched, "a pod to be touched")
    await world.edit(lambda found: [found["spec"].pop(part) for part in (*everything, "draft")])
    await world.until_children(2)
    await world.stop()
    asked = {(call.group, call.resource, call.verb) for call in world.proxy.calls}
    allowed = {rule for rule in granted(rules) if rule[0] not in ABSENT}
    assert {rule for rule in asked if rule[0] not in ABSENT} <= allowed
    unused = allowed - asked - IMPLIED
    # Every spec wants these two; they go with their owner.
    assert unused == {("apps", "deployments", "delete"), ("", "services", "delete")}
