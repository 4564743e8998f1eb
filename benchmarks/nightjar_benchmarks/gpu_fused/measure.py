"""What engines say of both passes, one engine after another: nothing else may run while one times them."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nightjar_benchmarks.gpu_engine import measure as gpu_engine
from nightjar_benchmarks.gpu_engine.measure import Engines, Note, Prompts
from nightjar_benchmarks.gpu_engine.pairs import BIG, write_pair
from nightjar_benchmarks.gpu_engine.remote import Remote
from nightjar_benchmarks.gpu_fused import figures
from nightjar_benchmarks.gpu_fused.drafts import write_shapes
from nightjar_benchmarks.records import Figure

MODULE = "nightjar_benchmarks.gpu_fused.under_test"
ENGINES = {"nightjar": MODULE, "stock": "nightjar_benchmarks.gpu_engine.under_test"}
GAMMA_MAX, POSITIONS = 3, 4096
STEADY = (1, 4, 8)
# Sizes of batches that have a fused pass.
SIZES = [1, 2, 4, 8, 16]


def shapes(folder: Path, note: Note) -> None:
    """Drafts of other families, behind small targets."""
    for what, name in (("a Llama of 1B", "llama_1b"), ("a Qwen3 of 0.6B", "qwen3_06b")):
        note(what, {f"{name}_vs_vllm_pass": figures.against_vllms_pass(chosen_for(name, folder))})


def chosen_for(name: str, folder: Path) -> dict[str, Any]:
    """What an engine with this draft and a small target found when it started."""
    target, draft = write_shapes(folder / name, name, POSITIONS)
    engine = Remote(name, shape_arguments(target, draft, folder / f"{name}.sock"), folder / f"{name}.log", MODULE)
    try:
        engine.receive()
        return engine.ask(do="passes")
    finally:
        engine.stop()


def serving(folder: Path, note: Note) -> None:
    """Engines that serve in turns, and what ours chose at its start against the times of another start."""
    pair = write_pair(folder / "big", BIG)
    arguments = gpu_engine.big_arguments(pair, folder)
    engines = {}
    with ExitStack() as stack:
        for name, module in ENGINES.items():
            engines[name] = Remote(name, arguments[name], folder / f"{name}.log", module)
            stack.callback(engines[name].stop)
            engines[name].receive()
        chosen = engines["nightjar"].ask(do="passes")
        note("7B with 0.5B", steady(engines, Prompts(pair)))
    note("0.5B again", {"worst_vs_vllm_pass": figures.worst_of_the_choice(chosen, chosen_for("05b", folder))})


def steady(engines: Engines, prompts: Prompts) -> dict[str, Figure]:
    given = {"stock": 0, "nightjar": GAMMA_MAX}
    return {
        f"gamma3_vs_no_draft_b{batch}": figures.steady(
            gpu_engine.take_turns(engines, given, prompts, batch, gamma=GAMMA_MAX)
        )
        for batch in STEADY
    }


def shape_arguments(target: Path, draft: Path, socket: Path) -> dict[str, Any]:
    return {
        "model": str(target),
        "skip_tokenizer_init": True,
        "load_format": "dummy",
        "dtype": "bfloat16",
        "max_model_len": POSITIONS,
        "max_num_seqs": max(SIZES),
        "gpu_memory_utilization": 0.5,
        "kv_cache_memory_bytes": 12 << 30,
        "disable_log_stats": False,
        "compilation_config": {"cudagraph_capture_sizes": SIZES},
        "speculative_config": {
            "method": "draft_model",
            "model": str(draft),
            "num_speculative_tokens": GAMMA_MAX,
        },
        "additional_config": {"nightjar": {"socket": str(socket)}},
    }
