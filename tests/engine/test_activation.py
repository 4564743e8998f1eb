"""Opt-in: what a vLLM configuration becomes, on real configurations made in one process of vLLM."""

import importlib.metadata
import json
import os
import subprocess
import sys
from inspect import getdoc
from pathlib import Path

import pytest

import nightjar_engine_patch
from nightjar_api import engine_flags
from nightjar_engine_patch import activation

STOCK_WORKER = "vllm.v1.worker.cpu_worker.CPUWorker"
REFUSED = {
    "no draft": (
        {"speculative_config": None},
        ["Nightjar requires a draft model: pass --speculative-config", "or remove"],
    ),
    "no draft model": (
        {"speculative_config": {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3}},
        ["speculative_config.method: 'draft_model' is required, found 'ngram'"],
    ),
    "vLLM's own lengths": (
        {"speculative": {"num_speculative_tokens_per_batch_size": [[1, 4, 3], [5, 64, 0]]}},
        ["speculative_config.num_speculative_tokens_per_batch_size: None is required, found [(1, 4, 3), (5, 64, 0)]"],
    ),
    "parallel drafting": (
        {"speculative": {"parallel_drafting": True}},
        ["speculative_config.parallel_drafting: False is required, found True"],
    ),
    "sampled drafts": (
        {"speculative": {"draft_sample_method": "probabilistic"}},
        ["speculative_config.draft_sample_method: 'greedy' is required, found 'probabilistic'"],
    ),
    "another vocabulary": (
        {"speculative": {"use_heterogeneous_vocab": True}},
        ["speculative_config.use_heterogeneous_vocab: False is required, found True"],
    ),
    "a fallback that is too long": (
        {"nightjar": {"fallback_gamma": 4}},
        ["nightjar.fallback_gamma: at most speculative_config.num_speculative_tokens (3) is required, found 4"],
    ),
    "tile sizes that are not there": (
        {"nightjar": {"draft_tiles": "/nowhere.json"}},
        ["nightjar.draft_tiles: /nowhere.json: a readable file of tile sizes is required: No such file or directory"],
    ),
    "an unknown setting": ({"nightjar": {"sockets": "x"}}, ["additional_config.nightjar: unknown keys ['sockets']"]),
    "the user's scheduler": (
        {"flags": ["--scheduler-cls", "vllm.v1.core.sched.scheduler.Scheduler"]},
        ["scheduler_config.scheduler_cls: Nightjar requires None, found 'vllm.v1.core.sched.scheduler.Scheduler'"],
    ),
    "the user's worker": (
        {"flags": ["--worker-cls", "their.Worker"]},
        [f"parallel_config.worker_cls: Nightjar requires {STOCK_WORKER!r}", "found 'their.Worker'"],
    ),
    "LoRA": ({"flags": ["--enable-lora"]}, ["lora_config: Nightjar requires None, found LoRAConfig"]),
    "data parallelism": (
        {"flags": ["--data-parallel-size", "2"]},
        ["parallel_config.data_parallel_size: Nightjar requires 1, found 2"],
    ),
    "data parallelism, in short": (
        {"flags": ["-dp", "2"]},
        ["parallel_config.data_parallel_size: Nightjar requires 1, found 2"],
    ),
    "tensor parallelism": (
        {"tensor_parallel_size": 2},
        ["parallel_config.tensor_parallel_size: Nightjar requires 1, found 2"],
    ),
    "pipeline parallelism": (
        {"flags": ["--pipeline-parallel-size", "2"]},
        ["parallel_config.pipeline_parallel_size: Nightjar requires 1, found 2"],
    ),
    "pipeline parallelism, in short": (
        {"flags": ["-pp", "2"]},
        ["parallel_config.pipeline_parallel_size: Nightjar requires 1, found 2"],
    ),
    "KV transfer": (
        {"flags": ["--kv-transfer-config", '{"kv_connector": "ExampleConnector", "kv_role": "kv_both"}']},
        ["kv_transfer_config: Nightjar requires None, found KVTransferConfig"],
    ),
    "KV offloading": (
        {"flags": ["--kv-offloading-size", "1"]},
        ["kv_transfer_config: Nightjar requires None, found KVTransferConfig"],
    ),
    "sleep mode beside elastic memory": (
        {"nightjar": {"elastic": True}, "sleeps": True},
        ["model_config.enable_sleep_mode: elastic memory requires False, found True", "or set additional_config"],
    ),
    "another vLLM": ({"version": "0.33.0"}, ["Nightjar requires vLLM ==0.32.0, found '0.33.0'"]),
    "a changed vLLM": (
        {"fingerprint": "0" * 16},
        ["this vLLM was changed in functions", "Scheduler.schedule (recorded 0"],
    ),
}
OPTED_OUT = {
    "no settings at all": {"additional_config": None},
    "settings of others": {"additional_config": {"other": {"socket": "x"}}},
    "no settings and no draft": {"additional_config": None, "speculative_config": None},
}
IN_ONE_PROCESS = """
import json, os, sys
import vllm
from vllm.engine.arg_utils import EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from nightjar_engine_patch import activation, fingerprints, register

stock = EngineArgs.create_engine_config
register()
replaced = EngineArgs.create_engine_config
register()
found = {"replaced once": EngineArgs.create_engine_config is replaced is not stock}

def classes(config):
    parallel = config.parallel_config
    return config.scheduler_config.scheduler_cls, parallel.worker_cls, parallel.distributed_executor_backend

def arguments(case):
    speculative = {"method": "draft_model", "model": sys.argv[2], "num_speculative_tokens": 3}
    settings = {"socket": "e.sock"} | case.pop("nightjar", {})
    given = {
        "model": sys.argv[1],
        "enforce_eager": True,
        "max_model_len": 256,
        "speculative_config": speculative | case.pop("speculative", {}),
        "additional_config": {"nightjar": settings},
    }
    # As the command line says it, over everything else.
    flags = case.pop("flags", [])
    said = vars(EngineArgs.from_cli_args(parser.parse_args(flags)))
    given |= case | {name: value for name, value in said.items() if value != stock_arguments[name]}
    return {name: value for name, value in given.items() if value is not None}

parser = make_arg_parser(FlexibleArgumentParser())
stock_arguments = vars(EngineArgs.from_cli_args(parser.parse_args([])))
found["flags"] = sorted(flag for action in parser._actions for flag in action.option_strings)

def attempt(case):
    vllm.__version__ = case.pop("version", version)
    recorded = case.pop("fingerprint", None)
    key = ("vllm.v1.core.sched.scheduler", "Scheduler.schedule")
    fingerprints.RECORDED[key] = recorded or fingerprint
    # vLLM's own check finds no sleep mode on CPUs.
    sleeps = case.pop("sleeps", False)
    given = arguments(case)
    config = stock(EngineArgs(**given))
    config.model_config.enable_sleep_mode = sleeps
    before = classes(config)
    try:
        if activation.is_opted_in(config.additional_config):
            activation.enable(config)
    except Exception as error:
        return {"refusal": f"{type(error).__name__}: {error}", "untouched": classes(config) == before}
    return {"classes": classes(config), "through vLLM": classes(EngineArgs(**given).create_engine_config())}

version = vllm.__version__
fingerprint = fingerprints.RECORDED["vllm.v1.core.sched.scheduler", "Scheduler.schedule"]
found |= {name: attempt(case) for name, case in json.load(sys.stdin).items()}

import nightjar_engine_patch.cpu.worker
from vllm.v1.worker import cpu_model_runner, cpu_worker
found["stock runner"] = cpu_worker.CPUModelRunner is cpu_model_runner.CPUModelRunner

from vllm.distributed.device_communicators import shm_broadcast
from vllm.v1.executor.multiproc_executor import MultiprocExecutor
from nightjar_engine_patch.cpu.executor import NightjarExecutor
from nightjar_engine_patch.cpu.waiting import Waiting

def rests(ours, theirs, start):
    "Whether a process of ours rests while it waits, before vLLM's own start and from it on."
    shm_broadcast.sched_yield = vllm.distributed.utils.sched_yield
    before, during = isinstance(shm_broadcast.sched_yield, Waiting), []
    setattr(theirs, start, lambda _: during.append(isinstance(shm_broadcast.sched_yield, Waiting)))
    one = ours.__new__(ours)
    # Of an executor: their processes, once vLLM has started them.
    one.workers = []
    getattr(one, start)()
    return [before, *during]

found["rests"] = [
    rests(NightjarExecutor, MultiprocExecutor, "_init_executor"),
    rests(nightjar_engine_patch.cpu.worker.NightjarCPUWorker, cpu_worker.CPUWorker, "init_device"),
]
with open(sys.argv[3], "w") as file:
    json.dump(found, file)
"""


@pytest.fixture(scope="module")
def found(pair, tmp_path_factory):
    """What became of each configuration, by its name."""
    cases = (
        {"plain": {}, "async": {"async_scheduling": True}}
        | OPTED_OUT
        | {name: case for name, (case, _) in REFUSED.items()}
    )
    folder = tmp_path_factory.mktemp("activation")
    result = folder / "found.json"
    subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, str(pair.target), str(pair.draft), str(result)],
        input=json.dumps(cases),
        text=True,
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR"},
        cwd=folder,
        timeout=800,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return json.loads(result.read_text())


def test_an_engine_that_opts_in_gets_our_scheduler_worker_and_executor(found):
    ours = [
        "nightjar_engine_patch.scheduler.NightjarScheduler",
        "nightjar_engine_patch.cpu.worker.NightjarCPUWorker",
        "nightjar_engine_patch.cpu.executor.NightjarExecutor",
    ]
    assert found["plain"] == {"classes": ours, "through vLLM": ours}


def test_asynchronous_scheduling_is_off_on_cpus_whatever_was_asked(found):
    assert found["async"] == found["plain"]


@pytest.mark.parametrize("name", OPTED_OUT)
def test_an_engine_that_does_not_opt_in_stays_stock(found, name):
    stock = [None, STOCK_WORKER, "mp"]
    assert found[name] == {"classes": stock, "through vLLM": stock}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_served_is_refused_by_its_setting_and_nothing_is_half_set(found, name):
    refusal = found[name]["refusal"]
    assert refusal.startswith("RefusalError: ")
    assert [part for part in REFUSED[name][1] if part not in refusal] == []
    assert found[name]["untouched"]


def test_every_flag_that_a_document_is_refused_for_is_refused_by_the_plugin():
    given = {case["flags"][0] for case, _ in REFUSED.values() if "flags" in case}
    # vLLM has neither on CPUs: the others are looked at in test_refusals.py.
    assert given == set(engine_flags._PLANNED)


def test_a_documents_refusals_name_flags_of_vllms_and_mistake_none_for_them(found):
    listed = {*engine_flags.OWNED, *engine_flags._PLANNED, *engine_flags._PLANNED_ON_GPUS, *engine_flags._ELASTIC}
    assert listed - set(found["flags"]) == set()
    blamed = [flag for flag in found["flags"] if engine_flags.contradictions([flag])]
    blamed += [flag for flag in found["flags"] if engine_flags.unplanned([flag], "cuda")]
    blamed += [flag for flag in found["flags"] if engine_flags.inelastic([flag])]
    assert sorted(blamed) == sorted(listed)


def test_registering_twice_replaces_once(found):
    assert found["replaced once"]


def test_importing_our_worker_replaces_nothing(found):
    assert found["stock runner"]


def test_engine_core_and_worker_rest_while_they_wait_for_each_other(found):
    assert found["rests"] == [[False, True], [False, True]]


def test_vllm_finds_the_plugin_by_its_entry_point():
    (plugin,) = importlib.metadata.entry_points(group="vllm.general_plugins", name="nightjar")
    assert plugin.load() is nightjar_engine_patch.register


def test_importing_the_plugin_needs_the_standard_library_alone():
    script = """
import sys
before = set(sys.modules)
for name in ("vllm", "torch", "grpc", "google", "numpy", "packaging", "nightjar_api"):
    sys.modules[name] = None
import nightjar_engine_patch
loaded = {name.split(".")[0] for name, module in sys.modules.items() if module and name not in before}
print(*sorted(loaded - set(sys.stdlib_module_names)))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert found.stdout.split() == ["nightjar_engine_patch"]


def test_every_replacement_says_what_why_how_and_until_when():
    """Text is compared, so that vLLM need not be imported."""
    package = Path(nightjar_engine_patch.__file__).parent
    names = ("cpu/worker.py", "cpu/sampling.py", "cpu/waiting.py", "cpu/elastic_allocation.py")
    names += ("gpu/elastic_allocation.py", "elastic/wake.py")
    for text in (getdoc(activation), *((package / name).read_text(encoding="utf-8") for name in names)):
        missing = [part for part in ("What:", "Why:", "How:", "Upstream:", "Goes away when") if part not in text]
        assert missing == []
