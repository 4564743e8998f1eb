"""The speculator captures both passes and keeps the faster one; graphs, events and models are doubles, batches real."""

import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nightjar_kernels.draft_inputs import Best, Requests
from nightjar_kernels.tiles import DEFAULT

with warnings.catch_warnings():
    # Importing vLLM warns of its own use of torch.
    warnings.simplefilter("ignore")
    from triton.runtime.errors import OutOfResources
    from vllm.v1.worker.gpu.input_batch import InputBuffers

    from nightjar_engine_patch.draft_tiles import GpuTiles
    from nightjar_engine_patch.gpu import pass_trial, speculator
    from nightjar_engine_patch.gpu.draft_graphs import DraftGraphs, batch_sizes
    from nightjar_engine_patch.gpu.fused_draft import UnsupportedDraftError
    from nightjar_engine_patch.gpu.speculator import GraphedSpeculator

CONTEXT, BLOCKS, MOST, BATCHES = 3000, 50, 32, (1, 2, 8, 16, 24)
# Room for all further passes that are captured one after another, and for far fewer than are timed.
GAMMA = len(BATCHES) + 1
CPU = torch.device("cpu")
BEST = {rows: Best(torch.zeros(rows, 1), torch.full((rows, 1), 7, dtype=torch.int32)) for rows in BATCHES}


class Graphs(DraftGraphs):
    """A graph is the pass itself, which is run again."""

    def __init__(self, _, __, sizes):
        self._sizes = list(sizes)
        self.graphs = {}

    def capture(self, run, _, buffers, *__, progress_bar_desc):
        for size in self._sizes:
            replay = partial(run, size.num_reqs, size.num_tokens, None, None)
            replay()
            # As vLLM does for the batch that it captures with.
            buffers.query_start_loc.fill_(9)
            self.graphs[size] = SimpleNamespace(replay=replay, is_fused="rank" in getattr(run, "keywords", {}))


class Device:
    """Time passes only where a pass says so."""

    def __init__(self):
        self.us = 0

    def event(self):
        mark = SimpleNamespace(at=None, synchronize=lambda: None)
        mark.record = lambda: setattr(mark, "at", self.us)
        mark.elapsed_time = lambda later: (later.at - mark.at) / 1e3
        return mark


@pytest.fixture
def device(monkeypatch):
    device = Device()
    monkeypatch.setattr(pass_trial, "_event", device.event)
    monkeypatch.setattr(torch.accelerator, "get_memory_info", lambda: (1, 1))
    monkeypatch.setattr(speculator, "DraftGraphs", Graphs)
    return device


@pytest.fixture
def made(device):
    """A speculator whose vLLM pass takes 1 ms, whatever the batch."""
    one = object.__new__(GraphedSpeculator)
    one.vllm_config, one.device, one.max_num_reqs, one._context = None, CPU, MOST, CONTEXT
    one.model = one.model_state = one._piece = one.captured = None
    one._first, one._next = InputBuffers(MOST, 2 * MOST, CPU), InputBuffers(MOST, MOST, CPU)
    one.idx_mapping = torch.zeros(MOST, dtype=torch.int64)
    one._drafting_rows, one._piece_slots = np.zeros(MOST, dtype=np.int64), torch.zeros(MOST, dtype=torch.int64)
    one._columns = torch.zeros(MOST, dtype=torch.int32)
    one.draft_tokens = torch.zeros(MOST, GAMMA, dtype=torch.int64)
    one._requests = Requests(
        torch.zeros(MOST, dtype=torch.int32),
        torch.zeros(MOST, CONTEXT, dtype=torch.int32),
        torch.zeros(MOST, 1, dtype=torch.int64),
    )
    tables = [torch.zeros(MOST, 4, dtype=torch.int32) for _ in range(2)]
    one.block_tables = SimpleNamespace(block_tables=[SimpleNamespace(gpu=tables[0])], input_block_tables=tables[1:])
    one.tiles = GpuTiles(DEFAULT, "somebody's")
    one.attn_groups, one.kv_cache_config = [], SimpleNamespace(num_blocks=BLOCKS)
    for name, tokens in (("first", 2), ("next", 1), ("short_first", 2), ("short_next", 1)):
        setattr(one, f"_{name}_graphs", Graphs(None, None, batch_sizes(BATCHES, tokens)))

    def vllms(_, read, *__):
        device.us += 1000
        return BEST[len(read.seq_lens)]

    one._run_and_rank = vllms
    return one


@pytest.fixture
def fused(device, monkeypatch):
    """A pass that takes 100 µs a request, and half as long again over long contexts."""
    seen = []

    def rank(read, tokens, context):
        rows = len(read.seq_lens)
        device.us += rows * (150 if context == CONTEXT else 100)
        seen.append((tokens, context, read.seq_lens.tolist(), read.positions.tolist()))
        return BEST[rows]

    monkeypatch.setattr(speculator, "fused_pass_of", lambda *_: SimpleNamespace(rank=rank))
    return seen


def kept(graphs):
    return {size.num_reqs: graph.is_fused for size, graph in graphs.graphs.items()}


def test_each_size_of_each_kind_keeps_its_faster_graph(made, fused):
    made.capture()
    short = {1: True, 2: True, 8: True, 16: False, 24: False}
    for graphs in (made._short_first_graphs, made._short_next_graphs):
        assert kept(graphs) == short
    for graphs in (made._first_graphs, made._next_graphs):
        assert kept(graphs) == short | {8: False}
    found = {
        (one.requests, one.tokens, one.context, one.is_long): (one.path, one.vllm_us, one.fused_us)
        for one in made.passes.timed
    }
    assert len(found) == 16
    assert made.passes.tiles == "somebody's"
    assert found[8, 2, 512 + 8 * 40, False] == ("fused", 1000, 800)
    assert found[16, 1, 512 + 16 * 40, False] == ("vllm", 1000, 1600)
    assert found[8, 1, CONTEXT, True] == ("vllm", 1000, 1200)


def test_passes_are_timed_over_whole_contexts_again_and_again(made, fused):
    made.capture()
    timed = [one for one in fused if one[2][0]]
    assert len(timed) == 16 * (pass_trial.WARM_UPS + pass_trial.RUNS)
    for tokens, context, seq_lens, positions in timed:
        assert set(seq_lens) == {context}
        assert positions == list(range(context - tokens, context)) * len(seq_lens)


def test_no_request_of_the_trial_is_left_behind(made, fused):
    made.capture()
    assert made.idx_mapping.eq(-1).all()
    tables = [made.block_tables.block_tables[0].gpu, *made.block_tables.input_block_tables]
    assert not any(one.any() for one in (made._requests.computed, *tables))
    assert made._first.query_start_loc[:4].tolist() == [0, 2, 4, 6]
    assert made._next.query_start_loc[:4].tolist() == [0, 1, 2, 3]


def test_rows_of_the_trial_have_blocks_that_there_are_and_spread_over_them(made):
    trial = pass_trial.Trial(
        made.idx_mapping, made._columns, made._requests, made.block_tables.input_block_tables, BLOCKS
    )
    with trial._batch(16, 100):
        (table,) = made.block_tables.input_block_tables
        assert set(table[:16].flatten().tolist()) == set(range(BLOCKS))
        assert not table[16:].any()


@pytest.mark.parametrize("error", [UnsupportedDraftError("of its kind"), OutOfResources(300, 200, "of its kind")])
def test_vllms_pass_serves_everywhere_where_the_fused_one_cannot_and_the_reason_is_kept(made, monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(speculator, "fused_pass_of", refuse)
    made.capture()
    assert "of its kind" in made.passes.refusal
    assert not made.passes.timed
    for graphs in (made._first_graphs, made._next_graphs, made._short_first_graphs, made._short_next_graphs):
        assert not any(kept(graphs).values())


def test_without_graphs_of_small_batches_there_is_nothing_to_choose(made):
    for name in ("first", "next", "short_first", "short_next"):
        setattr(made, f"_{name}_graphs", None)
    made.capture()
    assert "CUDA graphs for batches of at most 16 requests are required, found none" in made.passes.refusal


def test_an_estimate_of_memory_has_both_passes_captured_and_times_none(made, fused):
    made.is_estimate = True
    made.capture()
    rows = {len(seq_lens) for _, _, seq_lens, _ in fused}
    assert rows == {1, 2, 8, 16}, "the fused pass is captured"
    assert not any(seq_lens[0] for _, _, seq_lens, _ in fused), "and no context is made up to time it over"
    assert (made.passes.timed, made.passes.refusal, made.captured) == ((), "", None)
    made.is_estimate = False
    made.capture()
    assert len(made.passes.timed) == 16
    assert made.captured is not None


def test_weights_and_kv_are_looked_for_anew_each_time_vllm_has_graphs_captured(made, monkeypatch):
    """The first time is before elastic memory moves them."""
    seen = []

    def look(model, *_):
        seen.append(model)
        raise UnsupportedDraftError("enough seen")

    monkeypatch.setattr(speculator, "fused_pass_of", look)
    for made.model in ("before", "after"):
        made.capture()
    assert seen == ["before", "after"]
