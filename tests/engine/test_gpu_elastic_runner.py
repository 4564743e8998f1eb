"""When the GPU's model runner obeys, and what its outputs tell; vLLM's own part is a double."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest

from nightjar_engine_patch.draft_blocks import DraftBlocks
from nightjar_engine_patch.draft_passes import DraftPasses
from nightjar_engine_patch.elastic.directive import ExpandDirective, Obeyed, SqueezeDirective
from nightjar_engine_patch.gpu.unread import Unread
from nightjar_engine_patch.step_measure import CapturedGraphs

with warnings.catch_warnings():
    # Importing vLLM warns of its own use of torch.
    warnings.simplefilter("ignore")
    from vllm.v1.core.sched.output import CachedRequestData, SchedulerOutput
    from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner

    from nightjar_engine_patch.elastic.directed_output import with_directive
    from nightjar_engine_patch.gpu.runner import NightjarGPUModelRunner

DONE = Obeyed(80, 1 << 20)


class MemoryDouble:
    def __init__(self, events):
        self.events = events
        self.found = None

    def obey(self, directive):
        self.events.append(type(directive).__name__)

    def take(self):
        found, self.found = self.found, None
        return found

    def close(self):
        self.events.append("memory closed")


@pytest.fixture
def events():
    return []


@pytest.fixture
def runner(monkeypatch, events):
    """Everything of ours, around nothing of vLLM's."""

    def execute_model(_, scheduler_output, *__, **___):
        events.append("vLLM's step")
        return None if scheduler_output.total_num_scheduled_tokens else EMPTY_MODEL_RUNNER_OUTPUT

    monkeypatch.setattr(GPUModelRunner, "execute_model", execute_model)
    monkeypatch.setattr(GPUModelRunner, "sample_tokens", lambda *_: "on its way")
    monkeypatch.setattr(GPUModelRunner, "shutdown", lambda _: events.append("vLLM's shutdown"))
    runner = object.__new__(NightjarGPUModelRunner)
    runner.memory = MemoryDouble(events)
    runner._elastic_ns = runner._following_ns = 0
    runner._timer = SimpleNamespace(begin=lambda: events.append("timer"), end=lambda: "step")
    runner.speculator = SimpleNamespace(
        weight_bytes=7,
        captured=CapturedGraphs(3, 1.5, 1 << 20),
        read_tokens=0,
        stale_tokens=0,
        bookkeeping_ns=0,
        proposed=None,
        passes=DraftPasses(refusal="none here"),
        unread=Unread(4),
        blocks=DraftBlocks(16),
    )
    return runner


def scheduled(tokens, directive=None):
    output = SchedulerOutput(
        scheduled_new_reqs=[],
        scheduled_cached_reqs=CachedRequestData.make_empty(),
        num_scheduled_tokens={"a": tokens} if tokens else {},
        total_num_scheduled_tokens=tokens,
        scheduled_spec_decode_tokens={},
        scheduled_encoder_inputs={},
        num_common_prefix_blocks=[],
        finished_req_ids=set(),
        free_encoder_mm_hashes=[],
    )
    return output if directive is None else with_directive(output, directive)


@pytest.mark.parametrize("directive", [ExpandDirective(), SqueezeDirective(((9, 1),))])
def test_a_directive_comes_before_all_else_of_its_step(runner, events, directive):
    runner.execute_model(scheduled(5, directive))
    assert events == [type(directive).__name__, "timer", "vLLM's step"]


def test_the_step_that_ends_the_change_tells_so_whichever_it_is(runner):
    runner.execute_model(scheduled(5, ExpandDirective()))
    first = runner.sample_tokens(None)._measure
    assert first.obeyed is None
    assert first.elastic_ns > 0
    runner.memory.found = DONE
    runner.execute_model(scheduled(5))
    second = runner.sample_tokens(None)._measure
    assert (second.obeyed, second.elastic_ns) == (DONE, 0)
    runner.execute_model(scheduled(5))
    assert runner.sample_tokens(None)._measure.obeyed is None


def test_a_step_without_tokens_tells_too_and_is_not_timed(runner, events):
    assert runner.execute_model(scheduled(0, ExpandDirective())) is EMPTY_MODEL_RUNNER_OUTPUT
    runner.memory.found = DONE
    told = runner.execute_model(scheduled(0))
    assert told.measure.obeyed == DONE
    assert not hasattr(EMPTY_MODEL_RUNNER_OUTPUT, "measure")
    assert "timer" not in events
    runner.execute_model(scheduled(5))
    assert runner.sample_tokens(None)._measure.elastic_ns > 0, "in the next step that is reported"


def test_every_step_says_what_was_captured_for_the_draft(runner):
    runner.execute_model(scheduled(5))
    assert runner.sample_tokens(None)._measure.graphs == CapturedGraphs(3, 1.5, 1 << 20)


def test_all_requests_are_unread_once_the_draft_has_left(runner):
    unread, slots = runner.speculator.unread, np.array([0, 2])
    unread.start(0, 0)
    unread.start(2, 0)
    unread.step(slots, np.array([30, 50], dtype=np.int32), np.array([0, 0], dtype=np.int32))
    unread.read(slots, np.array([29, 49], dtype=np.int32))
    unread.draft(slots)
    runner.execute_model(scheduled(5, ExpandDirective()))
    found = unread.step(slots, np.array([4, 1], dtype=np.int32), np.array([30, 50], dtype=np.int32))
    assert found.tolist() == [34, 51]
    unread.read(slots, found - 1)
    runner.execute_model(scheduled(5, SqueezeDirective(())))
    later = unread.step(slots, np.array([1, 1], dtype=np.int32), np.array([34, 51], dtype=np.int32))
    assert later.tolist() == [2, 2], "the return itself loses nothing"


@pytest.mark.parametrize("directive", [ExpandDirective(), SqueezeDirective(())])
def test_no_block_counts_as_read_once_the_draft_left_or_blocks_moved(runner, directive):
    runner.speculator.blocks._read = {3}
    runner.speculator.blocks._unread = {"a": [4]}
    runner.execute_model(scheduled(5, directive))
    assert runner.speculator.blocks._read == set()
    assert not runner.speculator.blocks.awaits_any


def test_memory_is_given_back_after_everything_that_uses_it(runner, events):
    runner.shutdown()
    runner.shutdown()
    assert events == ["vLLM's shutdown", "memory closed", "vLLM's shutdown"]


def test_a_directive_for_an_engine_without_elastic_memory_is_an_error(runner):
    runner.memory = None
    with pytest.raises(RuntimeError, match="without elastic memory"):
        runner.execute_model(scheduled(0, ExpandDirective()))


def test_graphs_that_are_captured_for_an_estimate_of_memory_are_known_as_such(runner, monkeypatch):
    seen = []

    def capture_model(self, *, profile_only):
        seen.append((profile_only, self.speculator.is_estimate))
        return 5

    monkeypatch.setattr(GPUModelRunner, "capture_model", capture_model)
    assert runner.capture_model(profile_only=True) == 5
    assert runner.capture_model() == 5
    assert seen == [(True, True), (False, False)]
