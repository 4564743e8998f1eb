"""The draft's memory serves as KV cache and comes back, on a real engine: idle, under pressure, again and again."""

import asyncio
import functools
import os
import re
import time
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import httpx
import pytest

from nightjar_api.engine.v1.engine_pb2 import (
    DRAFT_RESIDENCY_AWAY,
    DRAFT_RESIDENCY_LEAVING,
    DRAFT_RESIDENCY_ON_DEVICE,
    DRAFT_RESIDENCY_RETURNING,
)
from nightjar_api.memory import MemorySpec
from nightjar_api.service import PlannerSpec
from nightjar_api.settings import SidecarSettings, dump
from nightjar_benchmarks.pairs import expected_continuation, random_prompt
from nightjar_sidecar import loop

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

FEW = 51
# At least; slow machines take more to serve as many requests.
CYCLES = 200
RECEIVED = 30
DEADLINE = 300
# Verified in every tenth cycle.
DRAFTS = 20


@pytest.fixture
def here(crowded):
    """An idle engine without speculation; whatever a test did, the draft is back afterwards."""
    crowded.plan(hold=0)
    yield crowded
    crowded.squeeze()


def residencies(progress):
    return [one.draft_residency for one in progress]


def refusal(call):
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
    return caught.value.details()


def resident_bytes(group):
    """Memory of all processes of the engine."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) == group:
                pages += int((process / "statm").read_text().split()[1])
        except (ProcessLookupError, FileNotFoundError):
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_an_idle_engine_expands_and_squeezes_at_once(here):
    assert here.info.elastic_unsupported_reason == ""
    left = here.expand()
    assert residencies(left) == [DRAFT_RESIDENCY_LEAVING, DRAFT_RESIDENCY_AWAY]
    target, draft = (getattr(here.pair.shape, name) for name in ("target", "draft"))
    gain = FEW * draft.layers * draft.kv_heads * draft.head_dim // (target.layers * target.kv_heads * target.head_dim)
    assert [one.blocks for one in left] == [FEW, FEW + gain]
    assert left[-1].moved_bytes > 0 < left[-1].elapsed_ns
    assert residencies(here.expand()) == [DRAFT_RESIDENCY_AWAY]
    back = here.squeeze()
    assert residencies(back) == [DRAFT_RESIDENCY_RETURNING, DRAFT_RESIDENCY_RETURNING, DRAFT_RESIDENCY_ON_DEVICE]
    assert [one.blocks for one in back] == [FEW + gain, FEW, FEW]
    assert residencies(here.squeeze()) == [DRAFT_RESIDENCY_ON_DEVICE]


def test_a_planned_length_forbids_to_expand(here):
    version = here.plan((0, 5), (2, 1), hold=0)
    assert (
        refusal(here.expand) == f"expand: γ = 0 for every batch is required, found plan {version}, which has γ up to 2"
    )
    here.plan(hold=0, ttl_ms=1)
    time.sleep(0.01)
    required = "expand: γ = 0 for every batch is required, found no plan and a fallback length of 1"
    assert refusal(here.expand) == required


def test_an_engine_without_elastic_memory_says_how_to_get_it(ranked):
    assert "additional_config.nightjar.elastic" in ranked.info.elastic_unsupported_reason
    assert refusal(ranked.expand) == refusal(ranked.squeeze) == ranked.info.elastic_unsupported_reason


def test_nothing_is_drafted_while_the_draft_is_away_whatever_is_planned(here):
    prompt = random_prompt(here.pair, 0, 100, 31)
    here.expand()
    with here.watched() as reports:
        here.plan(hold=3)
        here.check(prompt, expected_continuation(here.pair, prompt, 60))
    assert {report.gamma_drafted for report in reports} == {0}
    assert {report.draft_residency for report in reports} == {DRAFT_RESIDENCY_AWAY}
    assert {report.draft_ns for report in reports} == {0}
    assert len({report.plan_version for report in reports if report.decode_batch}) == 1


def test_requests_that_wait_have_room_when_the_draft_leaves_and_forbid_its_return(here):
    """Requests that grow to 448 tokens each, over blocks for four, of many more clients than fit into a batch.

    Asked at a moment when all clients are between two requests, the draft comes back; so it is asked again.
    """
    made = [(random_prompt(here.pair, 0, 100, 40 + i), 340) for i in range(20)]
    received, refused = [], []

    def is_forbidden_for_who_waits():
        here.expand()
        try:
            here.squeeze()
        except grpc.RpcError as error:
            refused.append(error)
        why = "squeeze: no waiting request is required, found "
        return any(error.details().startswith(why) for error in refused)

    with here.watched() as reports, here.busy(made, len(made), received):
        here.until(lambda: any(report.waiting for report in reports))
        here.expand()
        here.until(lambda: any(in_use(report) > FEW and report.waiting for report in reports))
        here.until(is_forbidden_for_who_waits)
    assert {error.code() for error in refused} == {grpc.StatusCode.FAILED_PRECONDITION}
    for prompt, tokens in received:
        assert tokens == expected_continuation(here.pair, prompt, len(tokens))


def in_use(report):
    return report.total_blocks - report.free_blocks


@pytest.fixture(scope="module")
def cycles(crowded, crowd):
    """Requests all the time while the memory changes hands; at first of so many clients that requests are preempted
    and there is no room to shrink.
    """
    made = crowd([0], 48, 3)
    story = {"refused": [], "moved": 0, "received": [], "cycles": 0}
    preempted = crowded.metric("vllm:num_preemptions_total")
    with crowded.watched() as reports:
        with crowded.busy(made, 6, story["received"]):
            while not story["refused"] or crowded.metric("vllm:num_preemptions_total") == preempted:
                cycle_once(crowded, reports, story)
        with crowded.busy(made, 3, story["received"]):
            while story["cycles"] < CYCLES or story["moved"] <= CYCLES or len(story["received"]) <= RECEIVED:
                cycle_once(crowded, reports, story)
    return story | {"reports": reports}


def cycle_once(engine, reports, story):
    engine.plan(hold=0)
    engine.expand()
    # A few steps.
    time.sleep(0.01)
    while True:
        try:
            story["moved"] += engine.squeeze()[-1].moved_blocks
            break
        except grpc.RpcError as error:
            story["refused"].append(error.details())
            time.sleep(0.01)
    engine.plan(hold=3)
    if story["cycles"] % 10 == 0:
        seen = len(reports)
        engine.until(lambda: sum(report.verified_tokens for report in reports[seen:]) >= DRAFTS)
    time.sleep(0.01)
    story["cycles"] += 1


def test_every_request_gets_the_targets_own_tokens_over_all_cycles(cycles, pair):
    assert len(cycles["received"]) > RECEIVED
    for prompt, tokens in cycles["received"]:
        assert tokens == expected_continuation(pair, prompt, len(tokens))


def test_the_cycles_met_what_they_were_made_for(cycles):
    reports = cycles["reports"]
    assert cycles["moved"] > CYCLES, "blocks that held something moved"
    assert {report.draft_residency for report in reports} >= {DRAFT_RESIDENCY_ON_DEVICE, DRAFT_RESIDENCY_AWAY}
    assert sum(report.elastic_ns > 0 for report in reports) >= CYCLES
    assert sum(report.verified_tokens for report in reports) >= CYCLES // 10 * DRAFTS


def test_no_draft_is_refused_over_all_cycles_so_nothing_it_read_was_stale(cycles):
    """What it had read before it left was lost."""
    for report in cycles["reports"]:
        assert list(report.accepted_by_position) == list(report.verified_by_position)


def test_the_cycles_lose_no_block(cycles, crowded):
    assert cycles["reports"][-1].total_blocks == FEW
    crowded.until(lambda: crowded.metric("vllm:kv_cache_usage_perc") == 0)


@asynccontextmanager
async def crowding(engine, made):
    """`Engine.busy` for a test whose event loop must go on; gives what was received."""
    received = []
    clients = engine.busy(made, len(made), received)
    clients.__enter__()
    try:
        yield received
    finally:
        await asyncio.to_thread(clients.__exit__, None, None, None)


async def test_the_sidecar_makes_room_under_pressure_and_brings_the_draft_back(here, tmp_path):
    """Twelve clients over blocks for four until there is more room, then quiet."""
    memory = MemorySpec(elastic=True, tau_low=12, persist_steps=2, dwell="100ms")
    path = tmp_path / "settings.json"
    path.write_text(dump(SidecarSettings(revision="one", planner=PlannerSpec(policy="off"), memory=memory)))
    made = [(random_prompt(here.pair, 0, 100, 60 + i), 300) for i in range(12)]
    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    options = loop.Options(here.socket, path, "127.0.0.1", 0)
    sidecar = asyncio.create_task(loop.run(options, stop, listening.set_result))
    url = f"http://127.0.0.1:{await listening}"
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=DEADLINE) as client:

        async def until_memory(change, residency, meanwhile):
            """What changed last is this, and the steps say so too."""
            async with asyncio.timeout(DEADLINE):
                while True:
                    found = (await client.get("/status")).json()["memory"]
                    if (found["latest"] or {}).get("change") == change and found["draftResidency"] == residency:
                        return found["latest"]
                    await meanwhile()

        async with crowding(here, made) as received:
            await until_memory("expand", "DRAFT_RESIDENCY_AWAY", lambda: asyncio.sleep(0.02))
        # An idle engine reports nothing.
        small = functools.partial(asyncio.to_thread, here.token_ids, made[0][0], 4)
        latest = await until_memory("squeeze", "DRAFT_RESIDENCY_ON_DEVICE", small)
        metrics = (await client.get("/metrics")).text
    stop.set()
    await sidecar
    here.continue_plans()
    for prompt, tokens in received:
        assert tokens == expected_continuation(here.pair, prompt, len(tokens))
    assert 0 < latest["seconds"] < DEADLINE
    for change in ("expand", "squeeze"):
        assert re.search(rf'nightjar_memory_change_seconds_count{{change="{change}"}} [1-9]', metrics)


def test_changes_of_hands_take_no_memory(here):
    """Without requests: what steps take for shapes of batches they first meet would hide it."""
    resident = []
    for index in range(200):
        here.expand()
        here.squeeze()
        if index % 20 == 0:
            resident.append(resident_bytes(here._process.pid))
    assert resident[-1] - resident[1] < 4 << 20
