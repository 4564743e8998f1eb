from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DraftResidency(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DRAFT_RESIDENCY_UNSPECIFIED: _ClassVar[DraftResidency]
    DRAFT_RESIDENCY_ON_DEVICE: _ClassVar[DraftResidency]
    DRAFT_RESIDENCY_LEAVING: _ClassVar[DraftResidency]
    DRAFT_RESIDENCY_AWAY: _ClassVar[DraftResidency]
    DRAFT_RESIDENCY_RETURNING: _ClassVar[DraftResidency]
DRAFT_RESIDENCY_UNSPECIFIED: DraftResidency
DRAFT_RESIDENCY_ON_DEVICE: DraftResidency
DRAFT_RESIDENCY_LEAVING: DraftResidency
DRAFT_RESIDENCY_AWAY: DraftResidency
DRAFT_RESIDENCY_RETURNING: DraftResidency

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class EngineInfo(_message.Message):
    __slots__ = ("engine_id", "nightjar_version", "vllm_version", "runner", "target_model", "draft_model", "gamma_max", "fallback_gamma", "max_batch", "tensor_parallel_size", "block_tokens", "block_bytes", "blocks", "draft_weight_bytes", "plan_version", "elastic_unsupported_reason", "draft_residency", "draft_weights_stay", "draft_block_bytes", "draft_passes", "fused_draft_refusal", "draft_graphs", "draft_tiles")
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    NIGHTJAR_VERSION_FIELD_NUMBER: _ClassVar[int]
    VLLM_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    TARGET_MODEL_FIELD_NUMBER: _ClassVar[int]
    DRAFT_MODEL_FIELD_NUMBER: _ClassVar[int]
    GAMMA_MAX_FIELD_NUMBER: _ClassVar[int]
    FALLBACK_GAMMA_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_UNSUPPORTED_REASON_FIELD_NUMBER: _ClassVar[int]
    DRAFT_RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    DRAFT_WEIGHTS_STAY_FIELD_NUMBER: _ClassVar[int]
    DRAFT_BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_PASSES_FIELD_NUMBER: _ClassVar[int]
    FUSED_DRAFT_REFUSAL_FIELD_NUMBER: _ClassVar[int]
    DRAFT_GRAPHS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TILES_FIELD_NUMBER: _ClassVar[int]
    engine_id: str
    nightjar_version: str
    vllm_version: str
    runner: str
    target_model: str
    draft_model: str
    gamma_max: int
    fallback_gamma: int
    max_batch: int
    tensor_parallel_size: int
    block_tokens: int
    block_bytes: int
    blocks: int
    draft_weight_bytes: int
    plan_version: int
    elastic_unsupported_reason: str
    draft_residency: DraftResidency
    draft_weights_stay: bool
    draft_block_bytes: int
    draft_passes: _containers.RepeatedCompositeFieldContainer[DraftPass]
    fused_draft_refusal: str
    draft_graphs: DraftGraphs
    draft_tiles: str
    def __init__(self, engine_id: _Optional[str] = ..., nightjar_version: _Optional[str] = ..., vllm_version: _Optional[str] = ..., runner: _Optional[str] = ..., target_model: _Optional[str] = ..., draft_model: _Optional[str] = ..., gamma_max: _Optional[int] = ..., fallback_gamma: _Optional[int] = ..., max_batch: _Optional[int] = ..., tensor_parallel_size: _Optional[int] = ..., block_tokens: _Optional[int] = ..., block_bytes: _Optional[int] = ..., blocks: _Optional[int] = ..., draft_weight_bytes: _Optional[int] = ..., plan_version: _Optional[int] = ..., elastic_unsupported_reason: _Optional[str] = ..., draft_residency: _Optional[_Union[DraftResidency, str]] = ..., draft_weights_stay: _Optional[bool] = ..., draft_block_bytes: _Optional[int] = ..., draft_passes: _Optional[_Iterable[_Union[DraftPass, _Mapping]]] = ..., fused_draft_refusal: _Optional[str] = ..., draft_graphs: _Optional[_Union[DraftGraphs, _Mapping]] = ..., draft_tiles: _Optional[str] = ...) -> None: ...

class DraftPass(_message.Message):
    __slots__ = ("requests", "tokens", "context", "path", "vllm_us", "fused_us", "long_contexts")
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    VLLM_US_FIELD_NUMBER: _ClassVar[int]
    FUSED_US_FIELD_NUMBER: _ClassVar[int]
    LONG_CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    requests: int
    tokens: int
    context: int
    path: str
    vllm_us: float
    fused_us: float
    long_contexts: bool
    def __init__(self, requests: _Optional[int] = ..., tokens: _Optional[int] = ..., context: _Optional[int] = ..., path: _Optional[str] = ..., vllm_us: _Optional[float] = ..., fused_us: _Optional[float] = ..., long_contexts: _Optional[bool] = ...) -> None: ...

class DraftGraphs(_message.Message):
    __slots__ = ("captured", "seconds", "bytes")
    CAPTURED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    captured: int
    seconds: float
    bytes: int
    def __init__(self, captured: _Optional[int] = ..., seconds: _Optional[float] = ..., bytes: _Optional[int] = ...) -> None: ...

class WatchStepsRequest(_message.Message):
    __slots__ = ("max_delay_ms", "observe")
    MAX_DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    OBSERVE_FIELD_NUMBER: _ClassVar[int]
    max_delay_ms: int
    observe: bool
    def __init__(self, max_delay_ms: _Optional[int] = ..., observe: _Optional[bool] = ...) -> None: ...

class StepBatch(_message.Message):
    __slots__ = ("reports", "dropped")
    REPORTS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    reports: _containers.RepeatedCompositeFieldContainer[StepReport]
    dropped: int
    def __init__(self, reports: _Optional[_Iterable[_Union[StepReport, _Mapping]]] = ..., dropped: _Optional[int] = ...) -> None: ...

class StepReport(_message.Message):
    __slots__ = ("step", "time_ns", "decode_batch", "prefill_tokens", "scheduled_tokens", "recomputed_tokens", "gamma_verified", "drafted_at_step", "gamma_drafted", "emitted_tokens", "verified_tokens", "accepted_tokens", "verified_by_position", "accepted_by_position", "forward_ns", "draft_ns", "catch_up_ns", "step_ns", "catch_up_tokens", "stale_tokens", "free_blocks", "total_blocks", "running", "waiting", "draft_residency", "plan_version", "overhead_ns", "elastic_ns")
    STEP_FIELD_NUMBER: _ClassVar[int]
    TIME_NS_FIELD_NUMBER: _ClassVar[int]
    DECODE_BATCH_FIELD_NUMBER: _ClassVar[int]
    PREFILL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RECOMPUTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    GAMMA_VERIFIED_FIELD_NUMBER: _ClassVar[int]
    DRAFTED_AT_STEP_FIELD_NUMBER: _ClassVar[int]
    GAMMA_DRAFTED_FIELD_NUMBER: _ClassVar[int]
    EMITTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_BY_POSITION_FIELD_NUMBER: _ClassVar[int]
    FORWARD_NS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_NS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_NS_FIELD_NUMBER: _ClassVar[int]
    STEP_NS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STALE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    FREE_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    DRAFT_RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    PLAN_VERSION_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_NS_FIELD_NUMBER: _ClassVar[int]
    ELASTIC_NS_FIELD_NUMBER: _ClassVar[int]
    step: int
    time_ns: int
    decode_batch: int
    prefill_tokens: int
    scheduled_tokens: int
    recomputed_tokens: int
    gamma_verified: int
    drafted_at_step: int
    gamma_drafted: int
    emitted_tokens: int
    verified_tokens: int
    accepted_tokens: int
    verified_by_position: _containers.RepeatedScalarFieldContainer[int]
    accepted_by_position: _containers.RepeatedScalarFieldContainer[int]
    forward_ns: int
    draft_ns: int
    catch_up_ns: int
    step_ns: int
    catch_up_tokens: int
    stale_tokens: int
    free_blocks: int
    total_blocks: int
    running: int
    waiting: int
    draft_residency: DraftResidency
    plan_version: int
    overhead_ns: int
    elastic_ns: int
    def __init__(self, step: _Optional[int] = ..., time_ns: _Optional[int] = ..., decode_batch: _Optional[int] = ..., prefill_tokens: _Optional[int] = ..., scheduled_tokens: _Optional[int] = ..., recomputed_tokens: _Optional[int] = ..., gamma_verified: _Optional[int] = ..., drafted_at_step: _Optional[int] = ..., gamma_drafted: _Optional[int] = ..., emitted_tokens: _Optional[int] = ..., verified_tokens: _Optional[int] = ..., accepted_tokens: _Optional[int] = ..., verified_by_position: _Optional[_Iterable[int]] = ..., accepted_by_position: _Optional[_Iterable[int]] = ..., forward_ns: _Optional[int] = ..., draft_ns: _Optional[int] = ..., catch_up_ns: _Optional[int] = ..., step_ns: _Optional[int] = ..., catch_up_tokens: _Optional[int] = ..., stale_tokens: _Optional[int] = ..., free_blocks: _Optional[int] = ..., total_blocks: _Optional[int] = ..., running: _Optional[int] = ..., waiting: _Optional[int] = ..., draft_residency: _Optional[_Union[DraftResidency, str]] = ..., plan_version: _Optional[int] = ..., overhead_ns: _Optional[int] = ..., elastic_ns: _Optional[int] = ...) -> None: ...

class ApplyPlanRequest(_message.Message):
    __slots__ = ("plan",)
    PLAN_FIELD_NUMBER: _ClassVar[int]
    plan: Plan
    def __init__(self, plan: _Optional[_Union[Plan, _Mapping]] = ...) -> None: ...

class Plan(_message.Message):
    __slots__ = ("version", "ttl_ms", "buckets")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    version: int
    ttl_ms: int
    buckets: _containers.RepeatedCompositeFieldContainer[BucketPlan]
    def __init__(self, version: _Optional[int] = ..., ttl_ms: _Optional[int] = ..., buckets: _Optional[_Iterable[_Union[BucketPlan, _Mapping]]] = ...) -> None: ...

class BucketPlan(_message.Message):
    __slots__ = ("max_batch", "schedule", "hold_gamma")
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    HOLD_GAMMA_FIELD_NUMBER: _ClassVar[int]
    max_batch: int
    schedule: _containers.RepeatedCompositeFieldContainer[Segment]
    hold_gamma: int
    def __init__(self, max_batch: _Optional[int] = ..., schedule: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., hold_gamma: _Optional[int] = ...) -> None: ...

class Segment(_message.Message):
    __slots__ = ("gamma", "steps")
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    gamma: int
    steps: int
    def __init__(self, gamma: _Optional[int] = ..., steps: _Optional[int] = ...) -> None: ...

class ApplyPlanResponse(_message.Message):
    __slots__ = ("version",)
    VERSION_FIELD_NUMBER: _ClassVar[int]
    version: int
    def __init__(self, version: _Optional[int] = ...) -> None: ...

class ExpandRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SqueezeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ElasticProgress(_message.Message):
    __slots__ = ("draft_residency", "blocks", "moved_blocks", "moved_bytes", "elapsed_ns")
    DRAFT_RESIDENCY_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MOVED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_NS_FIELD_NUMBER: _ClassVar[int]
    draft_residency: DraftResidency
    blocks: int
    moved_blocks: int
    moved_bytes: int
    elapsed_ns: int
    def __init__(self, draft_residency: _Optional[_Union[DraftResidency, str]] = ..., blocks: _Optional[int] = ..., moved_blocks: _Optional[int] = ..., moved_bytes: _Optional[int] = ..., elapsed_ns: _Optional[int] = ...) -> None: ...
