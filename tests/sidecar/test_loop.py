"""The whole sidecar against a double of the engine behind a real gRPC server, driven step by step."""

import asyncio
import itertools
from contextlib import asynccontextmanager

import httpx
import pytest

from nightjar_api.engine.v1 import engine_pb2
from nightjar_api.engine.v1.engine_pb2 import DRAFT_RESIDENCY_AWAY, DRAFT_RESIDENCY_ON_DEVICE
from nightjar_api.errors import ConfigurationError
from nightjar_api.memory import MemorySpec
from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings, dump
from nightjar_sidecar import loop
from nightjar_sidecar.controller import Controller

DEADLINE = 120


def write(path, revision, memory=None, **planner):
    settings = SidecarSettings(
        revision=revision,
        planner=PlannerSpec(**({"buckets": [1, 8, 64]} | planner)),
        memory=MemorySpec(**(memory or {})),
    )
    replace(path, dump(settings))


def replace(path, text):
    """Whoever reads meanwhile finds the old text or the new one."""
    fresh = path.with_name("fresh")
    fresh.write_text(text)
    fresh.replace(path)


def write_first(path, **planner):
    path.parent.mkdir(exist_ok=True)
    write(path, "one", **planner)


class Running:
    """A sidecar that runs, seen through its pages."""

    def __init__(self, client, settings, socket):
        self.client = client
        self.settings = settings
        self.socket = socket

    async def get(self, path):
        return await self.client.get(path)

    async def status(self):
        return (await self.client.get("/status")).json()

    async def metric(self, name):
        text = (await self.client.get("/metrics")).text
        return next(float(line.split()[-1]) for line in text.splitlines() if line.rsplit(" ", 1)[0] == name)

    async def until(self, condition):
        """Poll the status until `condition(status)` holds."""
        async with asyncio.timeout(DEADLINE):
            while not condition(status := await self.status()):  # noqa: ASYNC110 - there is only the page
                await asyncio.sleep(0.02)
        return status

    async def until_answer(self, path, code):
        """A sidecar that was kept from running for longer than a plan lives is not ready until the next is sent."""
        async with asyncio.timeout(DEADLINE):
            while (await self.get(path)).status_code != code:  # noqa: ASYNC110 - there is only the page
                await asyncio.sleep(0.02)


@pytest.fixture
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")
    return folder / "config" / "settings.json", folder / "e.sock"


@asynccontextmanager
async def sidecar(paths, **planner):
    settings, socket = paths
    write_first(settings, **planner)
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    options = loop.Options(socket, settings, "127.0.0.1", 0)
    task = asyncio.create_task(loop.run(options, stop, listening.set_result))
    try:
        async with asyncio.timeout(DEADLINE):
            port = await listening
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=DEADLINE) as client:
            yield Running(client, settings, socket)
    finally:
        stop.set()
        async with asyncio.timeout(DEADLINE):
            await task


def ready(status):
    return status["ready"]


async def test_a_plan_is_applied_as_soon_as_the_engine_is_there(paths, serving, engine_double):
    async with serving(engine_double(plan_version=7), paths[1]) as engine, sidecar(paths, policy="fixed") as running:
        status = await running.until(ready)
        assert engine.plans[0].version == 8
        assert [bucket.hold_gamma for bucket in engine.plans[0].buckets] == [3, 3, 3]
        assert status["plan"]["version"] >= 8
        await running.until_answer("/readyz", 200)
        assert (await running.get("/healthz")).status_code == 200


async def test_without_an_engine_the_sidecar_is_alive_but_not_ready_and_says_why(paths):
    async with sidecar(paths) as running:
        await running.until(lambda s: s["engine"]["error"])
        response = await running.get("/readyz")
        assert response.status_code == 503
        assert "GetInfo" in response.text
        assert str(paths[1]) in response.text
        assert (await running.get("/healthz")).status_code == 200


async def test_an_engine_that_is_not_there_is_told_in_few_words(paths):
    async with sidecar(paths) as running:
        status = await running.until(lambda s: s["engine"]["error"])
        assert status["engine"]["error"] == f"GetInfo on {paths[1]}: UNAVAILABLE: No such file or directory"


async def test_a_bug_in_planning_ends_neither_the_process_nor_planning(
    paths, serving, engine_double, monkeypatch, caplog
):
    write_first(paths[0])
    plan_due, calls = Controller.plan_due, itertools.count()

    def fails_at_first(controller):
        if next(calls) < 2:
            raise RuntimeError("a bug")
        return plan_due(controller)

    monkeypatch.setattr(Controller, "plan_due", fails_at_first)
    stop, ports = asyncio.Event(), []
    options = loop.Options(paths[1], paths[0], "127.0.0.1", 0)
    async with serving(engine_double(), paths[1]) as engine:
        task = asyncio.create_task(loop.run(options, stop, ports.append))
        await engine.until(lambda e: e.plans)
        stop.set()
        async with asyncio.timeout(DEADLINE):
            await task
    assert len(ports) == 3
    assert caplog.text.count("after an error that is a bug") == 2


async def test_being_stopped_does_not_wait_for_the_next_attempt(paths, serving, engine_double, monkeypatch, caplog):
    write_first(paths[0])
    stop = asyncio.Event()

    def fails(controller):
        stop.set()
        raise RuntimeError("a bug")

    monkeypatch.setattr(Controller, "plan_due", fails)
    monkeypatch.setattr(loop, "_FIRST_PAUSE_SECONDS", 3600.0)
    monkeypatch.setattr(loop, "_LONGEST_PAUSE_SECONDS", 3600.0)
    options = loop.Options(paths[1], paths[0], "127.0.0.1", 0)
    async with serving(engine_double(), paths[1]), asyncio.timeout(DEADLINE):
        await loop.run(options, stop)


async def test_the_plan_is_renewed_before_it_expires(paths, serving, engine_double):
    async with serving(engine_double(), paths[1]) as engine, sidecar(paths, policy="off", plan_ttl="300ms"):
        await engine.until(lambda e: len(e.plans) >= 4)
        assert {plan.ttl_ms for plan in engine.plans} == {300}
        assert [plan.version for plan in engine.plans] == list(range(1, len(engine.plans) + 1))


async def test_steps_are_learnt_from_and_shown(paths, serving, engine_double):
    async with serving(engine_double(), paths[1]) as engine, sidecar(paths) as running:
        await running.until(ready)
        await engine.until(lambda e: e.streams)
        for count in range(1, 41):
            engine.step(batch=4, draft_ns=15_000_000)
            await running.until(lambda s, c=count: s["steps"]["seen"] == c)
        # Everything is accepted and a draft pass is half of a forward pass: the longest length wins, but not by so much
        # that no other is worth a try.
        status = await running.until(lambda s: s["buckets"][1]["gamma"] == 3)
        assert status["speculation"]["acceptance"][0] > 0.9
        arms = status["buckets"][1]["arms"]
        assert [arm["gamma"] for arm in arms] == [0, 1, 2, 3]
        assert all(arm["believedSecondsPerToken"] > 0 for arm in arms)
        assert sum(arm["visits"] for arm in arms) > 30
        assert status["steps"]["freeBlocks"] == 90
        assert status["steps"]["tokensPerSecond"] >= status["steps"]["perSecond"] > 0
        assert await running.metric("nightjar_step_reports_total") == 40
        assert await running.metric('nightjar_planned_gamma{max_batch="8"}') == 3
        assert await running.metric('nightjar_draft_tokens_verified_total{position="0"}') > 0
        probed = {segment.gamma for plan in engine.plans for b in plan.buckets for segment in b.schedule}
        assert probed


@pytest.mark.parametrize(("most", "shown"), [(9, [1, 8, 64]), (8, [1, 8]), (256, [1, 8, 64]), (0, [1, 8, 64])])
async def test_batches_that_the_engine_has_no_room_for_are_not_shown(paths, serving, engine_double, most, shown):
    async with serving(engine_double(max_batch=most), paths[1]), sidecar(paths, buckets=[1, 8, 64]) as running:
        status = await running.until(ready)
        assert [bucket["maxBatch"] for bucket in status["buckets"]] == shown


async def test_lost_reports_are_counted_and_break_nothing(paths, serving, engine_double):
    async with serving(engine_double(), paths[1]) as engine, sidecar(paths) as running:
        await running.until(ready)
        await engine.until(lambda e: e.streams)
        engine.step()
        engine.steps += 5
        engine._drafted = (engine.steps, 3)
        engine.step()
        engine.send(dropped=5)
        await running.until(lambda s: s["steps"]["dropped"] == 5)
        assert await running.metric("nightjar_step_reports_dropped_total") == 5


async def test_settings_apply_while_serving(paths, serving, engine_double):
    async with serving(engine_double(), paths[1]) as engine, sidecar(paths, policy="fixed", fixed_gamma=1) as running:
        await running.until(ready)
        write(running.settings, "two", policy="fixed", fixed_gamma=2, buckets=[16], switch_cost="12ms")
        status = await running.until(lambda s: s["settings"]["revision"] == "two")
        await engine.until(lambda e: [b.hold_gamma for b in e.plans[-1].buckets] == [2])
        assert status["switchCost"]["seconds"] == 0.012
        assert len(engine.streams) == 1


@pytest.mark.parametrize(
    "bad",
    [
        lambda path: path.unlink(),
        lambda path: replace(path, "{"),
        lambda path: write(path, "two", gamma_max=9),
    ],
    ids=["missing", "malformed", "above the engine's"],
)
async def test_bad_settings_leave_the_old_ones_in_force_are_logged_once_and_counted(
    paths, serving, engine_double, bad, caplog
):
    async with serving(engine_double(), paths[1]) as engine, sidecar(paths, policy="fixed", fixed_gamma=1) as running:
        await running.until(ready)
        bad(running.settings)
        status = await running.until(lambda s: s["settings"]["error"] and s["ready"])
        assert status["settings"]["revision"] == "one"
        assert await running.metric("nightjar_settings_errors_total") == 1
        seen = len(engine.plans)
        await engine.until(lambda e: len(e.plans) > seen)
        assert engine.plans[-1].buckets[0].hold_gamma == 1
        assert sum("settings refused" in record.message for record in caplog.records) == 1
        write(running.settings, "three", policy="fixed", fixed_gamma=2)
        await running.until(lambda s: s["settings"]["revision"] == "three" and s["settings"]["error"] is None)


async def test_settings_that_do_not_fit_the_first_engine_make_the_sidecar_unready_until_mended(
    paths, serving, engine_double
):
    async with serving(engine_double(gamma_max=2), paths[1]) as engine, sidecar(paths, gamma_max=3) as running:
        await running.until(lambda s: s["settings"]["error"])
        assert "planner.gammaMax: at most 2" in (await running.get("/readyz")).text
        assert engine.plans == []
        write(running.settings, "two", gamma_max=2)
        await running.until(ready)


async def test_a_restarted_engine_is_found_again_and_planned_for(paths, serving, engine_double):
    async with sidecar(paths, policy="off") as running:
        async with serving(engine_double(), paths[1]) as engine:
            await running.until(ready)
            await engine.until(lambda e: e.streams)
            engine.step(batch=4)
            await running.until(lambda s: s["steps"]["latest"] == 1)
        status = await running.until(lambda s: not s["engine"]["connected"])
        assert not status["ready"]
        assert await running.metric("nightjar_engine_connected") == 0
        async with serving(engine_double(engine_id="second"), paths[1]) as engine:
            status = await running.until(ready)
            assert status["engine"]["info"]["engineId"] == "second"
            assert status["steps"]["latest"] is None
            assert engine.plans
            assert await running.metric("nightjar_engine_connections_total") == 2


async def test_an_engine_that_refuses_a_plan_is_shown_with_its_reason(paths, serving, engine_double):
    double = engine_double()
    double.refusal = "plan.ttl_ms: no"
    async with serving(double, paths[1]), sidecar(paths) as running:
        status = await running.until(lambda s: s["engine"]["error"])
        assert "plan.ttl_ms: no" in status["engine"]["error"]
        double.refusal = None
        await running.until(ready)


async def observed(running, engine, **report):
    """One step that the sidecar has seen."""
    engine.step(**report)
    await running.until(lambda s: s["steps"]["latest"] == engine.steps)


async def test_the_draft_leaves_and_comes_back_as_the_settings_say(paths, serving, engine_double):
    memory = {"elastic": True, "tau_low": "10%", "persist_steps": 2, "dwell": "0s"}
    double = engine_double(blocks=100, draft_residency=DRAFT_RESIDENCY_ON_DEVICE)
    async with serving(double, paths[1]) as engine, sidecar(paths, policy="off", memory=memory) as running:
        await running.until(ready)
        await engine.until(lambda e: e.streams)
        await observed(running, engine, free_blocks=9)
        await observed(running, engine, free_blocks=9)
        await engine.until(lambda e: e.changes == ["expand"])
        status = await running.until(lambda s: s["memory"]["draftResidency"] == "DRAFT_RESIDENCY_AWAY")
        assert status["memory"]["tauLowBlocks"] == 10
        latest = status["memory"]["latest"]
        assert (latest["change"], latest["seconds"]) == ("expand", pytest.approx(7e-3))
        assert (latest["movedBlocks"], latest["movedBytes"]) == (5, 30 << 20)
        away = {"total_blocks": 130, "draft_residency": DRAFT_RESIDENCY_AWAY}
        await observed(running, engine, free_blocks=40, **away)
        engine.refused_changes = {"squeeze"}
        await observed(running, engine, free_blocks=41, **away)
        status = await running.until(lambda s: s["memory"]["refusal"])
        assert status["memory"]["refusal"] == "squeeze: not now, γ 0"
        engine.refused_changes = set()
        await engine.until(lambda e: e.changes == ["expand", "squeeze"])
        await running.until(lambda s: s["memory"]["draftResidency"] == "DRAFT_RESIDENCY_ON_DEVICE")
        for name in ("expand", "squeeze"):
            assert await running.metric(f'nightjar_memory_change_seconds_count{{change="{name}"}}') == 1
        assert await running.metric('nightjar_memory_changes_refused_total{change="squeeze"}') >= 1
        assert await running.metric("nightjar_kv_blocks_moved_total") == 10


async def test_before_the_draft_leaves_and_while_it_is_away_no_length_is_planned(paths, serving, engine_double):
    """The steps are without a draft, yet the plan has lengths: for other batches, or soon."""
    memory = {"elastic": True, "persist_steps": 1}
    double = engine_double(blocks=100, draft_residency=DRAFT_RESIDENCY_ON_DEVICE)
    planner = {"policy": "fixed", "fixed_gamma": 2, "plan_ttl": "300ms", "memory": memory}
    async with serving(double, paths[1]) as engine, sidecar(paths, **planner) as running:
        await running.until(ready)
        await engine.until(lambda e: e.streams)
        assert [bucket.hold_gamma for bucket in engine.plans[-1].buckets] == [2, 2, 2]
        await observed(running, engine, free_blocks=9, gamma_drafted=0)
        await engine.until(lambda e: e.changes == ["expand"])
        renewed = len(engine.plans)
        await engine.until(lambda e: len(e.plans) > renewed + 1)
        assert [bucket.hold_gamma for bucket in engine.plans[-1].buckets] == [0, 0, 0]
        away = {"total_blocks": 130, "draft_residency": DRAFT_RESIDENCY_AWAY, "gamma_drafted": 0}
        write(running.settings, "two", memory={"elastic": False}, policy="fixed", fixed_gamma=2)
        await running.until(lambda s: s["settings"]["revision"] == "two")
        await observed(running, engine, free_blocks=90, **away)
        await engine.until(lambda e: e.changes == ["expand", "squeeze"])
        await engine.until(lambda e: [bucket.hold_gamma for bucket in e.plans[-1].buckets] == [2, 2, 2])


async def test_a_port_that_is_taken_is_refused_by_name(paths):
    async with sidecar(paths) as running:
        port = running.client.base_url.port
        options = loop.Options(paths[1], paths[0], "127.0.0.1", port)
        with pytest.raises(ConfigurationError, match=rf"--port: .*127\.0\.0\.1:{port}: it is taken"):
            await loop.run(options, asyncio.Event())


async def test_a_missing_settings_file_refuses_to_start(paths):
    with pytest.raises(ConfigurationError, match="readable settings file is required"):
        await loop.run(loop.Options(paths[1], paths[0], "127.0.0.1", 0), asyncio.Event())


async def test_weights_that_stay_are_told_while_the_draft_is_away(paths, serving, engine_double):
    sizes = {"block_bytes": 100, "draft_block_bytes": 30, "blocks": 50, "draft_weight_bytes": 777}
    double = engine_double(**sizes, draft_weights_stay=True)
    async with serving(double, paths[1]) as engine, sidecar(paths, policy="off") as running:
        await engine.until(lambda e: e.streams)
        engine.step(draft_residency=engine_pb2.DRAFT_RESIDENCY_AWAY, total_blocks=60, waiting=1)
        await running.until(lambda s: s["memoryBytes"] == {"targetKv": 4200, "draftKv": 0, "draftWeights": 777})


async def test_status_tells_what_the_engine_captured_for_its_draft(paths, serving, engine_double):
    async with serving(engine_double(), paths[1]) as engine, sidecar(paths, policy="off") as running:
        await engine.until(lambda e: e.streams)
        # An engine knows it from the first step on.
        engine.info.draft_graphs.CopyFrom(engine_pb2.DraftGraphs(captured=12, seconds=3.5, bytes=1 << 30))
        engine.step(gamma_drafted=0)
        told = {"captured": 12, "seconds": 3.5, "bytes": str(1 << 30)}
        await running.until(lambda s: s["engine"]["info"].get("draftGraphs") == told)


async def test_status_tells_memory_and_what_happened(paths, serving, engine_double):
    sizes = {"block_bytes": 100, "draft_block_bytes": 30, "blocks": 50}
    async with sidecar(paths, policy="fixed", fixed_gamma=1) as running:
        async with serving(engine_double(**sizes), paths[1]) as engine:
            status = await running.until(ready)
            assert status["memoryBytes"] == {"targetKv": 3500, "draftKv": 1500, "draftWeights": 0}
            await engine.until(lambda e: e.streams)
            # An engine knows the size of its draft, and which pass drafts, from the first step on.
            engine.info.draft_weight_bytes = 777
            engine.info.draft_passes.add(requests=4, tokens=2, context=672, path="fused", vllm_us=1200, fused_us=640)
            engine.info.draft_tiles = "NVIDIA H200's, shipped"
            engine.step(gamma_drafted=0)
            status = await running.until(lambda s: s["memoryBytes"]["draftWeights"] == 777)
            (passes,) = status["engine"]["info"]["draftPasses"]
            assert (passes["requests"], passes["tokens"], passes["context"], passes["longContexts"]) == (
                4,
                2,
                672,
                False,
            )
            assert (passes["path"], passes["vllmUs"], passes["fusedUs"]) == ("fused", 1200, 640)
            assert status["engine"]["info"]["fusedDraftRefusal"] == ""
            assert status["engine"]["info"]["draftTiles"] == "NVIDIA H200's, shipped"
            engine.step(gamma_drafted=1, draft_residency=engine_pb2.DRAFT_RESIDENCY_AWAY, total_blocks=60)
            await running.until(lambda s: s["memoryBytes"] == {"targetKv": 4200, "draftKv": 0, "draftWeights": 0})
            engine.step(gamma_drafted=1, plan_version=0)
            await running.until(lambda s: s["plan"]["obeyed"] is False)
        write(running.settings, "two", policy="off")
        await running.until(lambda s: not s["engine"]["connected"] and s["settings"]["revision"] == "two")
        async with serving(engine_double(engine_id="second"), paths[1]):
            status = await running.until(ready)
    told = {(event["kind"], event["message"].split(":")[0]) for event in status["events"]}
    assert told >= {
        ("engine", "connected"),
        ("gamma", "γ 0 → 1"),
        ("memory", "the draft is away"),
        ("plan", "no plan in force any more"),
        ("engine", "away, trying again"),
        ("settings", "revision two is in force"),
        ("engine", "another one serves"),
    }
    ages = [event["ageSeconds"] for event in status["events"]]
    assert ages == sorted(ages)
