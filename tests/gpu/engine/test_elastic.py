"""The draft's memory becomes KV cache and comes back on a GPU: tokens, graphs, preemption, the prefix cache.

Engines of this folder share a process, so this one has a process of its own, as in the benchmark.
"""

import os

import pytest

from nightjar_benchmarks.gpu_elastic.measure import MODULE, arguments
from nightjar_benchmarks.gpu_engine.measure import Prompts
from nightjar_benchmarks.gpu_engine.remote import Remote
from nightjar_benchmarks.pairs import expected_continuation

pytestmark = pytest.mark.timeout(600)
BLOCKS = 400


@pytest.fixture(scope="module")
def elastic(pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("elastic")
    engine = Remote("elastic", arguments(pair, folder / "e.sock", BLOCKS, 64, 1024), folder / "log", module=MODULE)
    engine.receive()
    yield engine
    engine.stop()


def expected(pair, prompts, tokens):
    return [expected_continuation(pair, prompt, tokens) for prompt in prompts]


def test_an_engine_whose_memory_never_changes_hands_is_as_any_other(elastic, pair):
    made = Prompts(pair).many(12, 100, 1)
    for gamma in (0, 3):
        answer = elastic.ask(prompts=made, tokens=40, gamma=gamma, answers=True, rows=True)
        assert answer["answers"] == expected(pair, made, 40)
    books = elastic.ask(do="books")
    assert books["free_granules"] == 0


def test_cycles_under_load_change_no_token_and_lose_no_granule(elastic, pair):
    prompts = Prompts(pair)
    # With the draft here, a crowd has no room for all.
    loads = {"calm": prompts.many(24, 128, 2), "crowd": prompts.many(64, 384, 3)}
    answer = elastic.ask(do="cycles", **loads, tokens=80, cycles=300)
    for name, made in loads.items():
        assert answer["answers"][name] == expected(pair, made, 80)
    assert answer["different"] == 0
    assert answer["requests"] > 0 < answer["preempted"]
    assert answer["moved_blocks"] > 0
    first, last = answer["samples"][1], answer["samples"][-1]
    assert first["device_free_bytes"] == last["device_free_bytes"]
    assert last["host_bytes"] - first["host_bytes"] < 64 << 20
    assert answer["books"]["free_granules"] == 0


def test_the_draft_drafts_as_well_as_before_once_it_is_back(elastic, pair):
    made = Prompts(pair).many(8, 100, 4)
    shares = []
    for _ in range(2):
        answer = elastic.ask(prompts=made, tokens=100, gamma=3, rows=True)
        shares.append(answer["acceptance_length"])
        elastic.ask(do="cycles", calm=made, crowd=made, tokens=40, cycles=3)
    assert shares[1] == pytest.approx(shares[0], rel=0.05), "its weights came back as they were"


def test_a_steady_batch_goes_on_while_memory_changes_hands(elastic, pair):
    made = Prompts(pair).many(16, 64, 5)
    answer = elastic.ask(do="stalls", prompts=made, tokens=300, cycles=2, away_steps=60)
    assert [change["kind"] for change in answer["changes"]] == ["expand", "squeeze"] * 2
    assert all(change["moved_bytes"] > 0 for change in answer["changes"])
    assert {change["blocks"] for change in answer["changes"] if change["kind"] == "squeeze"} == {BLOCKS}
    assert len(answer["reloads"]) == 2
    assert len(answer["steps"]) > 200


def test_requests_that_find_no_room_get_it_from_the_draft(elastic, pair):
    made = Prompts(pair).many(60, 128, 6)
    given = {"do": "serve", "prompts": made, "tokens": 100, "arrivals": [0.0] * len(made)}
    fixed, grown = (elastic.ask(**given, elastic=wanted) for wanted in (False, True))
    assert [change["kind"] for change in grown["changes"]] == ["expand", "squeeze"]
    assert len(grown["ttft_s"]) == len(fixed["ttft_s"]) == len(made)


def test_an_engine_on_a_host_without_memory_for_the_copy_does_not_start(pair, tmp_path):
    """The copy is checked against what the process may take, before it is made."""
    module = tmp_path / "poor_host.py"
    module.write_text(
        "from nightjar_engine_patch.gpu import elastic_start\n"
        "elastic_start.free_host_bytes = lambda: 1000\n"
        "from nightjar_benchmarks.gpu_elastic.under_test import ElasticUnderTest, main\n"
        "main(ElasticUnderTest)\n"
    )
    path = os.environ.get("PYTHONPATH", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), path]))
        given = arguments(pair, tmp_path / "e.sock", BLOCKS, 64, 1024)
        engine = Remote("poor", given, tmp_path / "log", module="poor_host")
        with pytest.raises(RuntimeError, match=r"bytes of host memory are required for a pinned copy"):
            engine.receive()
