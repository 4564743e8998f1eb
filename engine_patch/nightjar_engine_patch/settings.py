"""The engine part's settings, from `additional_config["nightjar"]`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from nightjar_engine_patch.errors import RefusalError

KEY = "nightjar"
# sockaddr_un.sun_path holds 108 bytes, the closing zero included.
SOCKET_PATH_BYTES = 107


_LEAST = {"fallback_gamma": 0, "catch_up_tokens": 16, "draft_graph_requests": 0, "report_queue": 16}


@dataclass(frozen=True)
class EngineSettings:
    """What `additional_config["nightjar"]` may say."""

    socket: str
    """Path of the control plane's unix socket; the folder must exist."""
    fallback_gamma: int = 0
    """Speculative length while no plan is in force."""
    catch_up_tokens: int | None = None
    """Most stale draft tokens caught up in one step; by default as many as lengthen a step by about a third."""
    draft_graph_requests: int = 512
    """Largest batch whose draft passes are captured in CUDA graphs at start-up; larger ones are launched eagerly."""
    draft_tiles: str | None = None
    """Path of a file of tile sizes that extends the shipped table (`nightjar_kernels.tiles`)."""
    report_queue: int = 4096
    """Step reports kept for a slow reader; beyond it the oldest go."""
    elastic: bool = False
    """Whether the draft's memory can serve as KV cache while nothing is speculated."""

    def __post_init__(self) -> None:
        _require("socket", self.socket, "a path", isinstance(self.socket, str) and self.socket != "")
        # gRPC would read %41 as A, and listen elsewhere.
        _require("socket", self.socket, "a path without %", "%" not in self.socket)
        length = len(self.socket.encode())
        _require("socket", self.socket, f"a path of at most {SOCKET_PATH_BYTES} bytes", length <= SOCKET_PATH_BYTES)
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name == "catch_up_tokens":
                continue
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            _require(name, value, f"an integer of at least {least}", is_integer and value >= least)
        is_path = self.draft_tiles is None or (isinstance(self.draft_tiles, str) and self.draft_tiles != "")
        _require("draft_tiles", self.draft_tiles, "a path", is_path)
        _require("elastic", self.elastic, "true or false", isinstance(self.elastic, bool))


def parse(additional_config: Mapping[str, Any]) -> EngineSettings:
    """The settings in vLLM's `--additional-config`; RefusalError names the key that is wrong."""
    found = additional_config[KEY]
    if not isinstance(found, Mapping):
        raise RefusalError(f"additional_config.{KEY}: an object is required, found {found!r}")
    known = {field.name for field in fields(EngineSettings)}
    unknown = sorted(set(found) - known)
    if unknown:
        raise RefusalError(f"additional_config.{KEY}: unknown keys {unknown}; known are {sorted(known)}")
    if "socket" not in found:
        raise RefusalError(f"additional_config.{KEY}.socket: a path for the control plane's socket is required")
    return EngineSettings(**found)


def _require(name: str, found: object, what: str, holds: bool) -> None:  # noqa: FBT001 - reads as a condition
    if not holds:
        raise RefusalError(f"additional_config.{KEY}.{name}: {what} is required, found {found!r}")
