"""Where a model comes from, and the secrets that reading it takes."""

from typing import ClassVar

from pydantic import Field

from nightjar_api.model import Model, Rule
from nightjar_api.names import ObjectName


class HubSource(Model):
    """A model on the Hugging Face hub."""

    id: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?$",
        max_length=200,
        description="`organisation/model`.",
    )
    revision: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._/-]+$",
        max_length=200,
        description="Branch, tag or commit; name a commit, and every restart loads the same weights.",
    )


class ClaimSource(Model):
    """A folder on a volume that a PersistentVolumeClaim of the same namespace binds; mounted read-only."""

    claim_name: ObjectName
    path: str = Field(default="", max_length=512, pattern=r"^[^\x00]*$", description="The folder within the volume.")

    rules: ClassVar = (
        Rule(
            field="path",
            requires="a path below the volume's root, without `..`, is required",
            holds=lambda part: not part.path.startswith("/") and ".." not in part.path.split("/"),
            cel="!self.path.startsWith('/') && !self.path.split('/').exists(part, part == '..')",
        ),
    )


_KINDS = ("hub", "pvc", "path", "uri")


class ModelSource(Model):
    """Where a model in the Hugging Face format comes from: exactly one of the fields."""

    hub: HubSource | None = Field(default=None, description="The Hugging Face hub.")
    pvc: ClaimSource | None = Field(default=None, description="A persistent volume claim.")
    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        pattern=r"^[^\x00]+$",
        description="A folder on the pod's file system, part of the engine's image.",
    )
    uri: str | None = Field(
        default=None,
        pattern=r"^(s3|gs|az)://[^\s\x00]+$",
        max_length=1024,
        description="An object store, streamed by vLLM: s3://, gs:// or az://.",
    )

    rules: ClassVar = (
        Rule(
            field="",
            requires="exactly one of hub, pvc, path and uri is required",
            holds=lambda part: sum(getattr(part, kind) is not None for kind in _KINDS) == 1,
            cel="[has(self.hub), has(self.pvc), has(self.path), has(self.uri)].filter(given, given).size() == 1",
            found=lambda part: [kind for kind in _KINDS if getattr(part, kind) is not None],
        ),
        Rule(
            field="path",
            requires="an absolute path is required",
            advice="a pod has no working folder of yours",
            holds=lambda part: part.path is None or part.path.startswith("/"),
            cel="!has(self.path) || self.path.startsWith('/')",
            cluster_only=True,
        ),
    )


class SecretKey(Model):
    """One value in a Secret of the same namespace."""

    name: ObjectName
    # The API server takes no key of a Secret that begins with two dots, or is one.
    key: str = Field(default="token", pattern=r"^([-_A-Za-z0-9]|\.[-_A-Za-z0-9])[-._A-Za-z0-9]*$", max_length=253)


class SecretName(Model):
    """A Secret of the same namespace."""

    name: ObjectName


class CredentialsSpec(Model):
    """Secrets of the engine: one process loads target and draft, so both use the same ones."""

    hub_token: SecretKey | None = Field(default=None, description="Token for the Hugging Face hub.")
    object_store: SecretName | None = Field(
        default=None,
        description="Secret whose keys become environment variables: AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL and such.",
    )
