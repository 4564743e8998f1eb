"""The documents that the benchmarks of this topic serve."""

from typing import Literal

from nightjar_api.containers import EngineSpec
from nightjar_api.service import (
    DraftSpec,
    Metadata,
    NightjarService,
    NightjarServiceSpec,
    PlannerSpec,
    PolicyName,
    TargetSpec,
)
from nightjar_api.sources import ModelSource
from nightjar_benchmarks.pairs import Pair
from nightjar_benchmarks.ports import free_port

GAMMA = 3


def service(
    name: str,
    pair: Pair,
    dtype: Literal["bfloat16", "float32"],
    most_concurrent: int,
    policy: PolicyName | None,
) -> NightjarService:
    """`policy` None: no draft at all. Otherwise the engines are the same."""
    draft = None
    if policy is not None:
        draft = DraftSpec(source=ModelSource(path=str(pair.draft)), num_speculative_tokens=GAMMA)
    return NightjarService(
        api_version="nightjar.dev/v1alpha1",
        kind="NightjarService",
        metadata=Metadata(name=name),
        spec=NightjarServiceSpec(
            target=TargetSpec(source=ModelSource(path=str(pair.target)), dtype=dtype, max_model_len=2048),
            draft=draft,
            engine=EngineSpec(
                port=free_port(),
                args=["--enforce-eager", "--max-num-seqs", str(most_concurrent), "--disable-uvicorn-access-log"],
                env={"VLLM_CPU_KVCACHE_SPACE": "1"},
            ),
            planner=PlannerSpec(policy=policy or "off", fixed_gamma=GAMMA),
        ),
    )
