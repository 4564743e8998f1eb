"""The two containers of a pod: the engine and the sidecar."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nightjar_api import durations, engine_flags
from nightjar_api.durations import Duration
from nightjar_api.model import Model, Rule
from nightjar_api.names import ENV_PATTERN, cel_keys
from nightjar_api.quantities import Quantity, amount

GPU = "nvidia.com/gpu"
# Kubernetes' own resources, and those of device plugins, which carry a domain.
_NATIVE = r"cpu|memory|ephemeral-storage"
_EXTENDED = r"([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]{2,16}/[A-Za-z0-9]([-A-Za-z0-9_.]{0,51}[A-Za-z0-9])?"
_RESOURCE = f"^({_NATIVE}|{_EXTENDED})$"

Image = Annotated[str, Field(pattern=r"^[^\s\x00]+$", max_length=512)]


def _are_resources(amounts: dict[str, str | int]) -> bool:
    return all(
        re.fullmatch(_RESOURCE, name) is not None and len(name) <= 128 and "kubernetes.io/" not in name
        for name in amounts
    )


def _cel_resources(field: str) -> str:
    return f"{cel_keys(field, _RESOURCE, 128)} && {field}.all(name, !name.contains('kubernetes.io/'))"


class Resources(Model):
    """What a container asks for (requests) and may take (limits), as in a PodSpec."""

    requests: dict[str, Quantity] = Field(default={}, max_length=16)
    limits: dict[str, Quantity] = Field(default={}, max_length=16)

    rules: ClassVar = (
        Rule(
            field="requests",
            requires="cpu, memory or ephemeral-storage is required",
            advice="devices go into limits",
            holds=lambda part: all(name in _NATIVE.split("|") for name in part.requests),
            cel="self.requests.all(name, name in ['cpu', 'memory', 'ephemeral-storage'])",
        ),
        Rule(
            field="limits",
            requires="cpu, memory, ephemeral-storage or a device like nvidia.com/gpu is required",
            holds=lambda part: _are_resources(part.limits),
            cel=_cel_resources("self.limits"),
        ),
        Rule(
            field="limits",
            requires="a whole number of each device is required",
            holds=lambda part: all(str(found).isdecimal() for name, found in part.limits.items() if "/" in name),
            cel="self.limits.all(name, !name.contains('/') || string(self.limits[name]).matches('^[0-9]+$'))",
        ),
        Rule(
            field="requests",
            requires="at most the limit of the same resource is required",
            holds=lambda part: all(
                amount(found) <= amount(part.limits[name])
                for name, found in part.requests.items()
                if name in part.limits
            ),
            cel=(
                "self.requests.all(name, !(name in self.limits) || quantity(string(self.requests[name]))"
                ".compareTo(quantity(string(self.limits[name]))) <= 0)"
            ),
        ),
    )


class EngineSpec(Model):
    """The vLLM process."""

    image: Image | None = Field(default=None, description="vLLM with Nightjar's plugin; the operator's if unset.")
    device: Literal["cuda", "cpu"] = Field(
        default="cuda",
        description=(
            "With `cuda` a pod asks for tensorParallelSize GPUs (nvidia.com/gpu), unless resources.limits names NVIDIA"
            " devices itself; with `cpu` it asks for none."
        ),
    )
    tensor_parallel_size: int = Field(
        default=1,
        ge=1,
        le=64,
        description="GPUs that share one copy of the model; 1 beside a draft that Nightjar plans for.",
    )
    resources: Resources = Field(default=Resources(), description="Of the container, as in a PodSpec.")
    # The sidecar listens at the next port.
    port: int = Field(default=8000, ge=1, le=65534, description="The OpenAI API's port.")
    args: list[Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]] = Field(
        default=[], max_length=64, description="Further arguments of `vllm serve`."
    )
    env: dict[str, Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]] = Field(
        default={}, max_length=64, description="Further environment of the engine."
    )
    catch_up_tokens: int | None = Field(
        default=None,
        ge=16,
        le=1_000_000,
        description="Most stale draft tokens caught up in one step after speculation returns; "
        "by default 2048 on GPUs, 512 on CPUs.",
    )
    draft_tiles: Annotated[str, Field(pattern=r"^/[^\x00]*$", max_length=4096)] | None = Field(
        default=None,
        description=(
            "A file of tile sizes of the fused draft pass, as `nightjar profile --kernels` writes it, where the engine"
            " finds it: in its image, on the cache or on a model's volume. It extends the table that is shipped."
        ),
    )
    startup_timeout: Duration = Field(
        default="1h",
        description="How long loading may take, downloads included, before the engine is restarted: 10s to 24h.",
    )

    rules: ClassVar = (
        Rule(
            field="args",
            requires="flags that no other field decides are required",
            advice="remove them here",
            holds=lambda part: engine_flags.contradictions(part.args) == [],
            found=lambda part: engine_flags.contradictions(part.args),
            cel=engine_flags.CEL_CONTRADICTIONS,
        ),
        Rule(
            field="env",
            requires="names of letters, digits and underscores are required",
            holds=lambda part: all(re.fullmatch(ENV_PATTERN, name) and len(name) <= 256 for name in part.env),
            found=lambda part: sorted(part.env),
            cel=cel_keys("self.env", ENV_PATTERN, 256),
        ),
        Rule(
            field="resources.limits",
            requires="as many nvidia.com/gpu as tensorParallelSize is required",
            advice="leave them out and they are filled in",
            holds=lambda part: (
                str(part.resources.limits.get(GPU, part.tensor_parallel_size)) == str(part.tensor_parallel_size)
            ),
            cel=(
                f"!('{GPU}' in self.resources.limits)"
                f" || string(self.resources.limits['{GPU}']) == string(self.tensorParallelSize)"
            ),
        ),
        Rule(
            field="startupTimeout",
            requires="10s to 24h is required",
            holds=lambda part: 10 <= durations.seconds(part.startup_timeout) <= 86_400,
            cel=durations.cel_between("self.startupTimeout", "10s", "24h"),
        ),
    )


_SIDECAR_RESOURCES = Resources(requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "512Mi"})


class SidecarSpec(Model):
    """The planner beside the engine."""

    image: Image | None = Field(default=None, description="The operator's if unset.")
    resources: Resources = Field(default=_SIDECAR_RESOURCES, description="Of the container, as in a PodSpec.")


class SecuritySpec(Model):
    """Who the pod's programs are. They are never root, and gain no privileges."""

    # Both containers share one user: the socket between them is open to its owner only.
    run_as_user: int = Field(default=10001, ge=1, le=2**31 - 1, description="User of both containers.")
    run_as_group: int = Field(default=10001, ge=1, le=2**31 - 1)
    fs_group: int = Field(default=10001, ge=1, le=2**31 - 1, description="Group that owns the volumes.")
    supplemental_groups: list[Annotated[int, Field(ge=1, le=2**31 - 1)]] = Field(default=[], max_length=16)
    read_only_root_filesystem: bool = Field(
        default=True, description="Of the engine; an image that writes elsewhere than to /tmp and /cache needs false."
    )
