"""NightjarService -> the containers of one pod.

Pure: `nightjar local` runs what this returns as processes, the operator renders it to manifests. What differs
between the two, places in the file system and addresses, comes in as a `Layout`.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath, PurePosixPath
from typing import Any

from nightjar_api import durations
from nightjar_api.service import DraftSpec, NightjarService
from nightjar_api.settings import SidecarSettings, for_service
from nightjar_api.sources import ModelSource

# Where the volumes `target` and `draft` are mounted, for models that lie on one.
MODELS = PurePosixPath("/models")


@dataclass(frozen=True)
class Layout:
    """Where the two containers of a pod meet, and where they find what they need."""

    socket: PurePath
    """The engine's gRPC socket, in a folder only the two containers share."""
    settings: PurePath
    """The sidecar's settings file."""
    status_port: int
    """TCP port of the sidecar's /metrics, /healthz, /readyz and /status."""
    drain_seconds: int = 30
    """How long running requests may take to finish once the engine is told to stop."""
    host: str = "127.0.0.1"
    """Where both containers listen: every address in a pod, the loopback on somebody's machine."""


@dataclass(frozen=True)
class Probe:
    """An HTTP GET on the pod's loopback; 200 means ready."""

    port: int
    path: str


@dataclass(frozen=True)
class Container:
    """One program of the pod; `command` starts with the program that its image provides."""

    name: str
    command: tuple[str, ...]
    readiness: Probe
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pod:
    """`sidecar` and `settings` are None where γ is not planned: without a draft, or with a method of vLLM's own."""

    engine: Container
    sidecar: Container | None
    settings: SidecarSettings | None


def build(service: NightjarService, layout: Layout) -> Pod:
    engine = _engine(service, layout)
    if not is_planned(service):
        return Pod(engine=engine, sidecar=None, settings=None)
    return Pod(engine=engine, sidecar=_sidecar(layout), settings=for_service(service, revision(service)))


def is_planned(service: NightjarService) -> bool:
    """Whether a sidecar chooses γ step by step."""
    return service.spec.draft is not None and service.spec.draft.is_planned


def revision(service: NightjarService) -> str:
    """Names what the sidecar is asked to obey: equal planner and memory fields, equal revision."""
    # Without defaults, so that an operator that knows a new field names unchanged settings as before.
    parts = [
        part.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        for part in (service.spec.planner, service.spec.memory)
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def served_name(service: NightjarService) -> str:
    return service.spec.target.served_name or service.metadata.name


def drain_seconds(service: NightjarService) -> int:
    return math.ceil(durations.seconds(service.spec.drain_timeout))


def _engine(service: NightjarService, layout: Layout) -> Container:
    spec = service.spec
    command = [
        *("vllm", "serve", _model(spec.target.source, MODELS / "target")),
        *("--host", layout.host),
        *("--port", str(spec.engine.port)),
        *("--served-model-name", served_name(service)),
        *("--dtype", spec.target.dtype),
        *("--shutdown-timeout", str(layout.drain_seconds)),
    ]
    if spec.target.source.hub is not None and spec.target.source.hub.revision is not None:
        command += ["--revision", spec.target.source.hub.revision]
    if spec.target.max_model_len is not None:
        command += ["--max-model-len", str(spec.target.max_model_len)]
    if spec.engine.tensor_parallel_size > 1:
        command += ["--tensor-parallel-size", str(spec.engine.tensor_parallel_size)]
    if spec.draft is not None:
        command += ["--speculative-config", json.dumps(_speculation(spec.draft))]
    if is_planned(service):
        command += ["--additional-config", json.dumps({"nightjar": _plugin(service, layout)})]
    return Container(
        name="engine",
        command=(*command, *spec.engine.args),
        readiness=Probe(spec.engine.port, "/health"),
        env=spec.engine.env,
    )


def _model(source: ModelSource, mount: PurePosixPath) -> str:
    """What vLLM is given for `source`, whose volume, if it lies on one, is mounted at `mount`."""
    if source.hub is not None:
        return source.hub.id
    if source.pvc is not None:
        return str(mount / source.pvc.path)
    # The model's rules leave exactly one of the two.
    return source.path or source.uri or ""


def _speculation(draft: DraftSpec) -> dict[str, Any]:
    config: dict[str, Any] = {"method": draft.method.replace("-", "_")}
    if draft.source is not None:
        config["model"] = _model(draft.source, MODELS / "draft")
        if draft.source.hub is not None and draft.source.hub.revision is not None:
            config["revision"] = draft.source.hub.revision
        if draft.source.uri is not None:
            # vLLM switches to streaming by itself for the target alone.
            config["draft_load_config"] = {"load_format": "runai_streamer"}
    return config | {"num_speculative_tokens": draft.num_speculative_tokens}


def _plugin(service: NightjarService, layout: Layout) -> dict[str, Any]:
    plugin: dict[str, Any] = {
        "socket": str(layout.socket),
        "fallback_gamma": service.spec.fallback.gamma,
    }
    if service.spec.engine.catch_up_tokens is not None:
        plugin["catch_up_tokens"] = service.spec.engine.catch_up_tokens
    if service.spec.engine.draft_tiles is not None:
        plugin["draft_tiles"] = service.spec.engine.draft_tiles
    # Only where it is wanted, so that the command of other pods stays as it was before there was elastic memory.
    return plugin | {"elastic": True} if service.spec.memory.elastic else plugin


def _sidecar(layout: Layout) -> Container:
    return Container(
        name="sidecar",
        command=(
            *("nightjar", "sidecar"),
            *("--engine-socket", str(layout.socket)),
            *("--settings", str(layout.settings)),
            *("--host", layout.host),
            *("--port", str(layout.status_port)),
        ),
        readiness=Probe(layout.status_port, "/readyz"),
    )
