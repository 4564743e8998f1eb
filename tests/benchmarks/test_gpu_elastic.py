"""What is made of the answers of an elastic GPU engine; the answers here are made up."""

import threading
from types import SimpleNamespace

import grpc
import pytest

from nightjar_benchmarks.goals import GOALS
from nightjar_benchmarks.gpu_elastic import figures, measure
from nightjar_benchmarks.gpu_elastic.changes import Changes
from nightjar_benchmarks.gpu_elastic.under_test import steady_run
from nightjar_benchmarks.gpu_engine.pairs import SMALL, write_pair

GRANULE = 16 << 20
BOOKS = {
    "granules": 300,
    "free_granules": 0,
    "granule_bytes": GRANULE,
    "weight_bytes": 1_000_000_000,
    "device_free_bytes": 1,
    "host_bytes": 1,
}


def change(kind, begun, ended, blocks=4112, moved=0):
    return {
        "kind": kind,
        "begun": begun,
        "ended": ended,
        "blocks": blocks,
        "moved_blocks": moved,
        "moved_bytes": GRANULE,
    }


def steps(count, slow=None):
    """A step every 6 ms; launched when they start."""
    return [[index * 0.006, index * 6.0, (slow or {}).get(index, 6.0)] for index in range(count)]


def test_capacity_is_what_the_draft_had_in_whole_blocks():
    answer = {"books": BOOKS, "changes": [change("expand", 0, 1, blocks=6080), change("squeeze", 2, 3)]}
    found = figures.capacity(answer, blocks=4112, target_block=917_504, draft_block=196_608)
    ideal = (1_000_000_000 + 4112 * 196_608) // 917_504
    assert found["capacity_gain_blocks"].value == 6080 - 4112
    assert found["capacity_shortfall_granules"].value == pytest.approx((ideal - 1968) * 917_504 / GRANULE, abs=1e-3)


def test_a_stall_is_the_longest_step_near_a_change_over_those_far_from_all():
    slow = {50: 7.5, 52: 9.0, 120: 10.5, 170: 30.0}
    answer = {
        "steps": steps(200, slow=slow),
        "changes": [change("expand", 50 * 0.006, 51 * 0.006), change("squeeze", 121.2 * 0.006, 121.4 * 0.006)],
    }
    found = figures.stalls(answer)
    assert found["expand_stall_ms"].value == 3.0
    assert found["squeeze_stall_ms"].value == 4.5
    assert found["squeeze_stall_ms"].raw["quiet_ms"]["max"] == 30.0


def test_a_reload_is_compared_with_a_copy_alone_and_steps_beside_it_with_those_alone():
    answer = {"books": BOOKS, "steps": steps(100, slow={40: 6.3, 41: 6.3, 42: 6.0}), "reloads": [[239.0, 259.0]]}
    found = figures.reload(answer, {"gb_s": [50.0, 55.0, 54.0]})
    assert found["reload_vs_copy_bandwidth"].value == pytest.approx(50.0 / 54.0, abs=1e-4)
    assert found["reload_step_slowdown"].value == pytest.approx(6.3 / 6.0)


def test_a_step_that_a_reload_held_up_counts_as_one_beside_it():
    held_up = [0.24, 240.0, 24.0]
    answer = {"books": BOOKS, "steps": [*steps(40), held_up], "reloads": [[238.0, 258.0]]}
    assert figures.reload(answer, {"gb_s": [50.0]})["reload_step_slowdown"].value == pytest.approx(24.0 / 6.0)


def test_saturation_is_the_median_turn():
    def answer(ttft, seconds):
        return {"ttft_s": [ttft] * 3, "tokens": 1000, "seconds": seconds}

    turns = [{"fixed": answer(1.0, 10.0), "elastic": answer(ttft, 8.0)} for ttft in (0.2, 0.4, 0.6)]
    found = figures.saturation(turns, {"requests_per_s": 10.0, "still_waiting": 3})
    assert found["ttft_p50_ratio"].value == 0.4
    assert found["tokens_ratio"].value == 1.25


def test_a_pool_that_nobody_waited_for_was_not_saturated():
    with pytest.raises(ValueError, match="a pool that requests wait for all the time is required"):
        figures.saturation([], {"requests_per_s": 10.0, "still_waiting": 0})


def endured(answers, **fields):
    usual = {"cycles": 10, "requests": 5, "different": 0, "refusals": 0, "moved_blocks": 1, "preempted": 1}
    return usual | {"samples": [BOOKS], "books": BOOKS, "answers": answers} | fields


def test_answers_count_that_are_not_the_targets_or_change_from_round_to_round():
    answer = endured({"calm": [[1, 2], [3, 4]]}, different=2, books=BOOKS | {"free_granules": 1, "granules": 299})
    found = figures.endurance(answer, {"calm": [[1, 2], [3, 5]]})
    assert found["mismatched_requests"].value == 3
    assert found["leaked_granules"].value == 2


class EngineDouble:
    """Answers as an engine under test that does everything right."""

    def __init__(self, pair):
        self.pair = pair

    def ask(self, do, **command):
        return getattr(self, do)(**command)

    def cycles(self, calm, crowd, tokens, cycles):
        loads = {"calm": calm, "crowd": crowd}
        answers = {
            name: [measure.expected_continuation(self.pair, prompt, tokens) for prompt in made]
            for name, made in loads.items()
        }
        return endured(answers, cycles=cycles)

    def stalls(self, cycles, **_):
        changes = [
            one
            for cycle in range(cycles)
            for one in (change("expand", cycle, cycle + 0.01, 6100), change("squeeze", cycle + 0.5, cycle + 0.52))
        ]
        return {"steps": steps(700), "changes": changes, "reloads": [[500.0, 520.0]], "books": BOOKS}

    def copy_bandwidth(self, **_):
        return {"gb_s": [50.0]}

    def capacity(self, prompts, tokens, seconds):
        assert len(prompts) == measure.CAPACITY_REQUESTS
        return {"requests_per_s": 10.0, "running": 7, "still_waiting": 5}

    def serve(self, prompts, tokens, arrivals, elastic):
        assert len(prompts) == len(arrivals)
        assert arrivals[6:8] == [0.0, pytest.approx(0.1, abs=1)]
        assert arrivals[-1] == pytest.approx(measure.SECONDS, rel=0.3)
        return {"ttft_s": [0.4 if elastic else 1.0], "tokens": tokens, "seconds": 1.0}


def test_every_figure_of_the_topic_is_measured(tmp_path):
    pair = write_pair(tmp_path, SMALL)
    engine, prompts = EngineDouble(pair), measure.Prompts(pair)
    found = measure.endurance(engine, pair) | measure.stalls(engine, prompts) | measure.saturation(engine, prompts)
    median = {"queued_us": {"median": 4.0}, "captured_us": {"median": 5.0}}
    found |= figures.kernels([{"blocks": 256, "ratio": 0.9}, {"blocks": 16, "ratio": 0.1}], [median])
    assert found["mismatched_requests"].value == 0
    assert (found["remap_us"].value, found["migration_vs_copy_bandwidth"].value) == (5.0, 0.9)
    goals = {goal.name: goal.unit for goal in GOALS if goal.topic == "elastic"}
    assert {name: figure.unit for name, figure in found.items()} == goals


def test_the_engines_arguments_name_a_pool_of_as_many_blocks(tmp_path):
    pair = write_pair(tmp_path, SMALL)
    given = measure.arguments(pair, tmp_path / "e.sock", 400, 64, 1024)
    assert given["num_gpu_blocks_override"] == 400
    assert given["kv_cache_memory_bytes"] == 400 * (16 * 4 * 2 * 128 * 4 + 16 * 2 * 2 * 64 * 4)
    assert given["additional_config"]["nightjar"]["elastic"] is True


class BusyError(grpc.RpcError):
    def __init__(self, code):
        self._code = code

    def code(self):
        return self._code


class ControlDouble:
    def __init__(self, refusals=0, code=grpc.StatusCode.FAILED_PRECONDITION):
        self.refusals, self.code = refusals, code

    def expand(self):
        return SimpleNamespace(blocks=80, moved_blocks=0, moved_bytes=5)

    def squeeze(self):
        if self.refusals:
            self.refusals -= 1
            raise BusyError(self.code)
        return SimpleNamespace(blocks=64, moved_blocks=3, moved_bytes=5)


def test_a_squeeze_is_asked_for_until_requests_allow_it():
    changes = Changes(ControlDouble(refusals=2))
    assert changes.expand().blocks == 80
    assert changes.squeeze().moved_blocks == 3
    assert changes.refusals == 2
    assert [row["kind"] for row in changes.rows()] == ["expand", "squeeze"]


def test_what_is_no_refusal_ends_the_story_and_reaches_who_serves():
    changes = Changes(ControlDouble(refusals=1, code=grpc.StatusCode.UNAVAILABLE))
    ended = threading.Event()

    def serve(done):
        while not done():
            pass
        ended.set()

    with pytest.raises(BusyError):
        changes.beside(lambda changes: changes.squeeze(), serve)
    assert ended.is_set()


def test_a_steady_run_is_counted_from_the_latest_step_back():
    seen = [(4, 4, None, 0.0), (4, 9, None, 0.0), (4, 4, None, 0.0), (4, 4, None, 0.0)]
    assert steady_run(seen, 4) == 2
    assert steady_run([], 4) == 0
