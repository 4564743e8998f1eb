"""The fused draft pass inside a service: the tokens stay the target's own, and both passes say the same.

Each engine has a process of its own, as in the benchmark.
"""

from itertools import product

import numpy as np
import pytest

from nightjar_benchmarks.gpu_engine.measure import Prompts, small_arguments
from nightjar_benchmarks.gpu_engine.pairs import SMALL
from nightjar_benchmarks.gpu_engine.remote import Remote
from nightjar_benchmarks.gpu_fused.drafts import write_lively_draft
from nightjar_benchmarks.gpu_fused.measure import MODULE
from nightjar_benchmarks.pairs import expected_continuation

pytestmark = pytest.mark.timeout(600)
# Of the texts that both passes read: 10,240 tokens, in as many blocks as the engine has.
ROWS, TEXT = 16, 640
BLOCKS = ROWS * TEXT // 16 + 1


def started(arguments, folder):
    engine = Remote("fused", arguments, folder / "log", module=MODULE)
    engine.receive()
    return engine


@pytest.fixture(scope="module")
def fused(pair, tmp_path_factory):
    """The made target with a draft whose layers have a say in what it proposes."""
    folder = tmp_path_factory.mktemp("fused")
    given = small_arguments(pair, folder)
    given["speculative_config"] |= {"model": str(write_lively_draft(folder, SMALL))}
    engine = started(given | {"num_gpu_blocks_override": BLOCKS, "enable_prefix_caching": False}, folder)
    yield engine
    engine.stop()


@pytest.fixture(scope="module")
def vllms(pair, tmp_path_factory):
    """A service in which only vLLM's pass runs."""
    folder = tmp_path_factory.mktemp("vllms")
    given = small_arguments(pair, folder)
    # No graphs of batches, and so nothing to choose from.
    given["additional_config"]["nightjar"]["draft_graph_requests"] = 0
    engine = started(given, folder)
    yield engine
    engine.stop()


def test_the_engine_tells_which_pass_drafts_for_which_batch(fused):
    answer = fused.ask(do="passes")
    assert answer["refusal"] == ""
    assert "'s, shipped" in answer["tiles"]
    found = {(one["requests"], one["tokens"], one["long_contexts"]): one for one in answer["passes"]}
    sizes = sorted({requests for requests, _, _ in found})
    # As vLLM captures them: which lie between depends on its version and on the longest draft.
    assert (sizes[0], sizes[-1]) == (1, 16)
    assert found.keys() == set(product(sizes, (2, 1), (False, True)))
    assert {(key[2], one["context"]) for key, one in found.items() if key[0] == 1} == {(False, 552), (True, 1024)}
    for one in found.values():
        assert one["path"] == ("fused" if one["fused_us"] < one["vllm_us"] else "vllm")
    assert found[1, 1, False]["path"] == "fused", "two layers of a small draft are all latency in vLLM's pass"


def test_the_engine_tells_why_there_is_nothing_to_choose(vllms):
    answer = vllms.ask(do="passes")
    assert "CUDA graphs for batches of at most 16 requests are required, found none" in answer["refusal"]
    assert answer["passes"] == []
    assert answer["tiles"] == ""


# Padded and not, and beyond what has a fused pass.
@pytest.mark.parametrize("batch", [1, 3, 8, 13, 16, 30])
def test_greedy_tokens_are_the_targets_own_with_and_without_it(fused, vllms, pair, batch):
    prompts = Prompts(pair).many(batch, 100, batch)
    expected = [expected_continuation(pair, prompt, 60) for prompt in prompts]
    for engine in (fused, vllms):
        answer = engine.ask(prompts=prompts, tokens=60, gamma=3, answers=True, rows=True)
        assert answer["answers"] == expected


def test_both_passes_prefer_the_same_tokens(fused, pair):
    """Last: afterwards the draft's KV is that of other texts."""
    vocabulary = np.flatnonzero(pair.graph.regions == 0).tolist()
    answer = fused.ask(do="agreement", rows=ROWS, tokens=TEXT, vocabulary=vocabulary)
    said = {path: np.array(tokens) for path, tokens in answer.items()}
    assert said["vllm"].size >= 10_000
    assert np.mean(said["vllm"] == said["fused"]) >= 0.995
    # What the made draft would say without layers that have a say: one of two tokens after each.
    texts = np.random.default_rng(0).choice(vocabulary, (ROWS, TEXT))
    made = [said["vllm"] == successors[texts] for successors in pair.graph.draft]
    assert 0.5 < np.mean(np.logical_or(*made)) < 0.99
