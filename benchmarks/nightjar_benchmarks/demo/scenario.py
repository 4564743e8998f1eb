"""What the demo serves: the pair, the three arms, and the load. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nightjar_api.containers import EngineSpec
from nightjar_api.service import (
    DraftSpec,
    Metadata,
    NightjarService,
    NightjarServiceSpec,
    PlannerSpec,
    TargetSpec,
)
from nightjar_api.sources import ModelSource
from nightjar_benchmarks.load.trace import Phase, Request, requests_of
from nightjar_benchmarks.pairs import DEMO, Pair, PairShape

NO_DRAFT, FIXED, NIGHTJAR = ARMS = ("no-draft", "fixed-3", "nightjar")
_GAMMA = 3
_SEED = 0
_SURGE_CONCURRENCY = 64
_WARM_UP_TOKENS_EACH = 8

Trace = list[tuple[Phase, list[Request]]]


@dataclass(frozen=True)
class Scenario:
    """`agreement` is per region: the surge asks for other texts than the quiet phases, as bursts do.

    The warm-up has `warm_up_tokens` of output at each concurrency, and at least 8 for each request.
    """

    shape: PairShape
    agreement: tuple[float, ...]
    phases: tuple[Phase, ...]
    warm_up_tokens: int

    @property
    def most_concurrent(self) -> int:
        return max(phase.concurrency for phase in self.phases)


def scenario(*, quick: bool) -> Scenario:
    """Quiet, surge, quiet again; the quick one has fewer and shorter requests."""
    calm, burst, warm_up_tokens = (3, 80, 64) if quick else (12, 384, 128)
    calm_tokens, burst_tokens = ((24, 32), (24, 32)) if quick else ((64, 112), (48, 80))
    return Scenario(
        shape=DEMO,
        agreement=(0.9, 0.5),
        phases=(
            Phase("quiet", 1, calm, 0, calm_tokens),
            Phase("surge", _SURGE_CONCURRENCY, burst, 1, burst_tokens),
            Phase("calm", 1, calm, 0, calm_tokens),
        ),
        warm_up_tokens=warm_up_tokens,
    )


def trace(pair: Pair, chosen: Scenario) -> Trace:
    """The measured load, the same for every arm."""
    return [(phase, requests_of(pair, phase, pair.shape.context_tokens, _SEED)) for phase in chosen.phases]


def turns(asked: Trace) -> Trace:
    """Each phase in parts, which the arms serve in turn: as many as leave one request for each client, and two in all.

    One engine's speed differs from one crowd to the next, so there have to be several.
    """
    parts = []
    for phase, requests in asked:
        number = max(1, len(requests) // max(2, phase.concurrency))
        size = -(-len(requests) // number)
        parts += [(phase, requests[start : start + size]) for start in range(0, len(requests), size)]
    return parts


def warm_up(pair: Pair, chosen: Scenario) -> Trace:
    """One short round at every concurrency, with prompts of its own; nobody measures it."""
    kinds = {phase.concurrency: phase.region for phase in chosen.phases}
    rounds = []
    for concurrency, region in sorted(kinds.items()):
        tokens = max(_WARM_UP_TOKENS_EACH, chosen.warm_up_tokens // concurrency)
        rounds.append(Phase(f"warm-up {concurrency}", concurrency, concurrency, region, (tokens, tokens)))
    return [(phase, requests_of(pair, phase, pair.shape.context_tokens, _SEED)) for phase in rounds]


def services(pair: Pair, chosen: Scenario, ports: Sequence[int]) -> dict[str, NightjarService]:
    """One document per arm, by name; they differ in draft, planner and port alone."""
    draft = DraftSpec(source=ModelSource(path=str(pair.draft)), num_speculative_tokens=_GAMMA)
    fixed = PlannerSpec(policy="fixed", fixed_gamma=_GAMMA)
    parts = {NO_DRAFT: (None, PlannerSpec()), FIXED: (draft, fixed), NIGHTJAR: (draft, PlannerSpec())}
    return {
        name: NightjarService(
            api_version="nightjar.dev/v1alpha1",
            kind="NightjarService",
            metadata=Metadata(name=name),
            spec=NightjarServiceSpec(
                target=_target(pair.target),
                draft=part,
                engine=_engine(port, chosen.most_concurrent),
                planner=planner,
            ),
        )
        for (name, (part, planner)), port in zip(parts.items(), ports, strict=True)
    }


def _target(path: Path) -> TargetSpec:
    # float32: with bfloat16 matrix units a CPU is never bound by arithmetic at these sizes, so speculation
    # always pays and there is nothing to adapt to.
    return TargetSpec(source=ModelSource(path=str(path)), dtype="float32", max_model_len=512)


def _engine(port: int, most_concurrent: int) -> EngineSpec:
    return EngineSpec(
        port=port,
        args=["--enforce-eager", "--max-num-seqs", str(most_concurrent), "--disable-uvicorn-access-log"],
        env={"VLLM_CPU_KVCACHE_SPACE": "1"},
    )
