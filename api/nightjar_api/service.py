"""The typed NightjarService (`nightjar.dev/v1alpha1`): what a person writes to have a model served.

The custom resource definition is generated from this model. Field names are camelCase in documents and
snake_case here; unknown fields are refused.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import yaml
from pydantic import BeforeValidator, ConfigDict, Field, ValidationError

from nightjar_api import durations, engine_flags, gamma_table, names
from nightjar_api.cluster import (
    AutoscalingSpec,
    CacheSpec,
    DisruptionSpec,
    MonitoringSpec,
    PullSecret,
    RolloutSpec,
    ServiceSpec,
)
from nightjar_api.containers import EngineSpec, SecuritySpec, SidecarSpec
from nightjar_api.durations import AutoOrDuration, Duration
from nightjar_api.errors import ConfigurationError, from_validation
from nightjar_api.memory import MemorySpec
from nightjar_api.model import Model, Rule
from nightjar_api.scheduling import SchedulingSpec
from nightjar_api.sources import CredentialsSpec, ModelSource

API_VERSION = "nightjar.dev/v1alpha1"
KIND = "NightjarService"


def _refuse_bare_off(value: object) -> object:
    if value is False:
        raise ValueError('"off" in quotes is required: YAML reads a bare off as false, found false')
    return value


PolicyName = Annotated[
    Literal[
        "nightjar",
        "ada-bingreedy",
        "fixed",
        "off",
        "static-table",
        "banditspec-ucb",
        "banditspec-exp3",
        "linucb",
        "linear-ts",
    ],
    BeforeValidator(_refuse_bare_off),
]


class Metadata(Model):
    """The part of Kubernetes' object metadata that matters here; the rest is Kubernetes' own and passes."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(pattern=names.SERVICE_PATTERN, max_length=names.SERVICE_LENGTH)
    namespace: names.Namespace = "default"


class TargetSpec(Model):
    """The model whose output is served."""

    source: ModelSource
    served_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        pattern=r"^[^\x00]+$",
        description="The name requests use; the service's name if unset.",
    )
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_model_len: int | None = Field(
        default=None,
        ge=16,
        le=100_000_000,
        description="Tokens of prompt and output together; the model's own limit if unset.",
    )


class DraftSpec(Model):
    """What proposes tokens."""

    method: Literal["draft-model", "eagle", "eagle3", "mtp", "ngram"] = Field(
        default="draft-model",
        description=(
            "`draft-model`: a small model with the target's vocabulary, planned by Nightjar. The others are served by"
            " vLLM itself with numSpeculativeTokens in every step, without planner and sidecar: eagle and eagle3 heads,"
            " the target's own multi-token prediction, and look-up in the prompt."
        ),
    )
    source: ModelSource | None = Field(default=None, description="The draft model; none for mtp and ngram.")
    num_speculative_tokens: int = Field(
        default=3,
        ge=1,
        le=16,
        description="Longest speculative length the engine is built for; needs a restart.",
    )

    rules: ClassVar = (
        Rule(
            field="source",
            requires="a model for draft-model, eagle and eagle3, none for mtp and ngram, is required",
            holds=lambda part: (part.source is not None) == (part.method in ("draft-model", "eagle", "eagle3")),
            cel="has(self.source) == (self.method in ['draft-model', 'eagle', 'eagle3'])",
        ),
    )

    @property
    def is_planned(self) -> bool:
        """Whether γ is chosen step by step; vLLM serves the other methods with a fixed one."""
        return self.method == "draft-model"


TableEntry = Annotated[list[Annotated[int, Field(ge=0, le=65_536)]], Field(min_length=3, max_length=3)]


class PlannerSpec(Model):
    """How the speculative length is chosen. Every field here applies to running pods without a restart."""

    policy: PolicyName = "nightjar"
    gamma_max: int | None = Field(
        default=None, ge=0, le=16, description="Longest length the planner may choose; the engine's if unset."
    )
    fixed_gamma: int = Field(default=3, ge=0, le=16, description="The length of the policy `fixed`.")
    table: list[TableEntry] | None = Field(
        default=None,
        min_length=1,
        max_length=64,
        description="For the policy `static-table`: [low, high, gamma] for growing ranges of batch sizes from 1.",
    )
    switch_cost: AutoOrDuration = Field(
        default="auto",
        description="Cost of going from no speculation to some: `auto` measures it, or a duration.",
    )
    buckets: list[Annotated[int, Field(ge=1, le=65_536)]] = Field(
        default=[1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256],
        min_length=1,
        max_length=64,
        description="Upper bounds of the decode batches that share one decision, growing.",
    )
    plan_ttl: Duration = Field(
        default="2s", description="An engine that hears nothing from the planner for this long falls back: 10ms to 1h."
    )

    @property
    def longest_in_table(self) -> int | None:
        """The longest length of the table, if the policy uses one."""
        return max(gamma for _, _, gamma in self.table or []) if self.policy == "static-table" else None

    rules: ClassVar = (
        Rule(
            field="table",
            requires="a table for the policy static-table is required",
            advice="`nightjar profile` makes one",
            holds=lambda part: part.policy != "static-table" or part.table is not None,
            cel="self.policy != 'static-table' || has(self.table)",
        ),
        Rule(
            field="table",
            requires="growing ranges from 1 that do not overlap, each low <= high, are required",
            holds=lambda part: part.table is None or gamma_table.problem(part.table) is None,
            cel=(
                "!has(self.table) || (self.table[0][0] == 1 && self.table.map(one, one[0]).isSorted()"
                " && self.table.all(one, one[0] <= one[1] && self.table.exists_one(other, other[0] == one[0]))"
                " && self.table.all(one, self.table.all(other,"
                " other[0] == one[0] || other[0] > one[1] || other[1] < one[0])))"
            ),
        ),
        Rule(
            field="buckets",
            requires="a list of growing upper bounds is required",
            holds=lambda part: all(low < high for low, high in pairwise(part.buckets)),
            cel="self.buckets.isSorted() && self.buckets.all(one, self.buckets.exists_one(other, one == other))",
        ),
        # The engine counts milliseconds in 32 bits, and a plan that lives shorter than a step never holds.
        Rule(
            field="planTtl",
            requires="10ms to 1h is required",
            holds=lambda part: 0.01 <= durations.seconds(part.plan_ttl) <= 3600,
            cel=durations.cel_between("self.planTtl", "10ms", "1h"),
        ),
    )


class FallbackSpec(Model):
    """What the engine does without a planner."""

    gamma: int = Field(default=0, ge=0, le=16, description="The length while no plan is in force; needs a restart.")


def _at_most_the_draft(field: str, cel_applies: str, value: Callable[[Any], int | None]) -> Rule:
    """γ of `field` is one the engine is built for; `value` gives None where the field says nothing."""

    def holds(part: "NightjarServiceSpec") -> bool:
        found = value(part)
        return part.draft is None or found is None or found <= part.draft.num_speculative_tokens

    return Rule(
        field=field,
        requires="at most draft.numSpeculativeTokens is required",
        advice="lower it or raise draft.numSpeculativeTokens",
        holds=holds,
        cel=f"!has(self.draft) || !({cel_applies}) || self.{field} <= self.draft.numSpeculativeTokens",
    )


def _is_shared(part: "NightjarServiceSpec") -> bool:
    return part.replicas > 1 or part.autoscaling is not None


def _unplanned_flags(part: "NightjarServiceSpec") -> list[str]:
    is_planned = part.draft is not None and part.draft.is_planned
    return engine_flags.unplanned(part.engine.args, part.engine.device) if is_planned else []


class NightjarServiceSpec(Model):
    """What is served, and how."""

    target: TargetSpec
    draft: DraftSpec | None = Field(default=None, description="Without a draft the service never speculates.")
    credentials: CredentialsSpec = CredentialsSpec()
    replicas: int = Field(default=1, ge=0, le=1000, description="Pods; written by the autoscaler if there is one.")
    engine: EngineSpec = EngineSpec()
    sidecar: SidecarSpec = SidecarSpec()
    planner: PlannerSpec = PlannerSpec()
    memory: MemorySpec = MemorySpec()
    fallback: FallbackSpec = FallbackSpec()
    drain_timeout: Duration = Field(
        default="30s", description="How long running requests may take once a pod is told to stop: 0s to 1h."
    )
    scheduling: SchedulingSpec = SchedulingSpec()
    cache: CacheSpec | None = Field(default=None, description="Without one a pod downloads and compiles anew.")
    service: ServiceSpec = ServiceSpec()
    autoscaling: AutoscalingSpec | None = None
    disruption: DisruptionSpec | None = None
    monitoring: MonitoringSpec | None = None
    rollout: RolloutSpec = RolloutSpec()
    security: SecuritySpec = SecuritySpec()
    image_pull_secrets: list[PullSecret] = Field(default=[], max_length=16)

    rules: ClassVar = (
        _at_most_the_draft("planner.gammaMax", "has(self.planner.gammaMax)", lambda part: part.planner.gamma_max),
        _at_most_the_draft(
            "planner.fixedGamma",
            "self.planner.policy == 'fixed'",
            lambda part: part.planner.fixed_gamma if part.planner.policy == "fixed" else None,
        ),
        Rule(
            field="planner.table",
            requires="lengths of at most draft.numSpeculativeTokens are required",
            advice="lower them or raise draft.numSpeculativeTokens",
            holds=lambda part: (
                part.draft is None or (part.planner.longest_in_table or 0) <= part.draft.num_speculative_tokens
            ),
            cel=(
                "!has(self.draft) || self.planner.policy != 'static-table' || !has(self.planner.table)"
                " || self.planner.table.all(one, one[2] <= self.draft.numSpeculativeTokens)"
            ),
        ),
        _at_most_the_draft("fallback.gamma", "true", lambda part: part.fallback.gamma),
        Rule(
            field="drainTimeout",
            requires="0s to 1h is required",
            holds=lambda part: durations.seconds(part.drain_timeout) <= 3600,
            cel=durations.cel_between("self.drainTimeout", "0s", "1h"),
        ),
        # With these three the plugin would refuse to start, and the pod crash (nightjar_engine_patch.refusals).
        Rule(
            field="engine.args",
            requires="flags that a draft of method draft-model can be planned under are required",
            advice="remove them; or leave out the draft, or take another method",
            holds=lambda part: _unplanned_flags(part) == [],
            found=_unplanned_flags,
            cel=f"!has(self.draft) || self.draft.method != 'draft-model' || {engine_flags.CEL_UNPLANNED}",
        ),
        Rule(
            field="engine.args",
            requires="flags that go with elastic memory are required",
            advice="remove them, or set memory.elastic to false",
            holds=lambda part: not part.memory.elastic or engine_flags.inelastic(part.engine.args) == [],
            found=lambda part: engine_flags.inelastic(part.engine.args),
            cel=f"!self.memory.elastic || {engine_flags.CEL_INELASTIC}",
        ),
        Rule(
            field="engine.tensorParallelSize",
            requires="1 beside a draft of method draft-model is required",
            advice="Nightjar plans for models on one GPU; leave out the draft, or take another method",
            holds=lambda part: part.engine.tensor_parallel_size == 1 or part.draft is None or not part.draft.is_planned,
            cel="self.engine.tensorParallelSize == 1 || !has(self.draft) || self.draft.method != 'draft-model'",
        ),
        Rule(
            field="cache.accessMode",
            requires="ReadWriteMany for a claim that several pods share is required",
            advice="replicas above 1 and autoscaling make several pods",
            holds=lambda part: (
                part.cache is None
                or part.cache.size is None
                or part.cache.access_mode == "ReadWriteMany"
                or not _is_shared(part)
            ),
            cel=(
                "!has(self.cache) || !has(self.cache.size) || self.cache.accessMode == 'ReadWriteMany'"
                " || (self.replicas <= 1 && !has(self.autoscaling))"
            ),
        ),
        Rule(
            field="autoscaling.metric",
            requires="a metric that pods without a sidecar have is required",
            advice="metrics named nightjar_ come from the sidecar, which takes a draft of method draft-model",
            holds=lambda part: (
                part.autoscaling is None
                or not part.autoscaling.metric.startswith("nightjar_")
                or (part.draft is not None and part.draft.is_planned)
            ),
            cel=(
                "!has(self.autoscaling) || !self.autoscaling.metric.startsWith('nightjar_')"
                " || (has(self.draft) && self.draft.method == 'draft-model')"
            ),
        ),
        Rule(
            field="memory.elastic",
            requires="a draft of method draft-model beside elastic memory is required",
            holds=lambda part: not part.memory.elastic or (part.draft is not None and part.draft.is_planned),
            cel="!self.memory.elastic || (has(self.draft) && self.draft.method == 'draft-model')",
        ),
        Rule(
            field="imagePullSecrets",
            requires="each name once is required",
            holds=lambda part: len({secret.name for secret in part.image_pull_secrets}) == len(part.image_pull_secrets),
            cel="self.imagePullSecrets.all(one, self.imagePullSecrets.exists_one(other, one.name == other.name))",
        ),
    )


class NightjarService(Model):
    """A whole document."""

    api_version: Literal["nightjar.dev/v1alpha1"]
    kind: Literal["NightjarService"]
    metadata: Metadata
    spec: NightjarServiceSpec


def from_object(found: Mapping[str, Any]) -> NightjarService:
    """The document in an object of the API server, status left out; ConfigurationError names what is wrong."""
    document = {key: value for key, value in found.items() if key != "status"}
    try:
        return NightjarService.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise from_validation(_name(document), error) from error


def load(path: Path) -> NightjarService:
    """Read one NightjarService document; ConfigurationError names the file, the field and what is required."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: a readable NightjarService document is required: {error.strerror}"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: YAML in UTF-8 is required: {error}") from error
    try:
        return NightjarService.model_validate(document, by_alias=True, by_name=False)
    except ValidationError as error:
        raise from_validation(str(path), error) from error


def _name(document: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"NightjarService {name}" if name else "NightjarService"
