"""One engine on a GPU for the whole folder, in this process, steered over its control plane."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from nightjar_benchmarks.gpu_engine.watcher import STEP_FIELDS

HERE = Path(__file__).parent
GAMMA_MAX = 4


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            item.add_marker(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def pair(tmp_path_factory):
    from nightjar_benchmarks.gpu_engine.pairs import SMALL, write_pair
    from nightjar_benchmarks.pairs.tokenizer import train, write_tokenizer

    made = write_pair(tmp_path_factory.mktemp("pair"), SMALL)
    # For what is asked in words: structured output, and a server's answers.
    write_tokenizer(made.target, train(SMALL.vocab_size), SMALL.max_positions)
    return made


class Engine:
    def __init__(self, llm, control, pair):
        self.llm, self.control, self.pair = llm, control, pair

    def generate(self, prompts, sampling, gamma=0, segments=()):
        """Outputs in order, and the reports of the steps that emitted something and obeyed this plan.

        The step that was under way when the last request of the call before ended is finished in this one.
        """
        self.control.take()
        version = self.control.plan([list(segment) for segment in segments], gamma)
        given = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(given, sampling, use_tqdm=False)
        rows = (SimpleNamespace(**dict(zip(STEP_FIELDS, row, strict=True))) for row in self.control.take())
        reports = [report for report in rows if report.plan_version == version]
        return [output.outputs[0] for output in outputs], reports


@pytest.fixture(scope="session")
def engine(pair, tmp_path_factory):
    """So few blocks that requests are preempted, and prompts in chunks."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    from nightjar_benchmarks.gpu_engine.control import Control

    socket = str(tmp_path_factory.mktemp("run") / "e.sock")
    llm = LLM(
        model=str(pair.target),
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=16,
        max_num_batched_tokens=256,
        num_gpu_blocks_override=160,
        kv_cache_memory_bytes=1 << 30,
        gpu_memory_utilization=0.1,
        disable_log_stats=False,
        structured_outputs_config={"backend": "xgrammar", "disable_any_whitespace": True},
        speculative_config={"method": "draft_model", "model": str(pair.draft), "num_speculative_tokens": GAMMA_MAX},
        additional_config={"nightjar": {"socket": socket}},
    )
    control = Control(socket)
    yield Engine(llm, control, pair)
    control.close()
