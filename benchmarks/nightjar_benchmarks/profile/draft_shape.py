"""The sizes of a draft that decide what its kernels take, from its config.json."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nightjar_api.errors import ConfigurationError, from_validation

_Size = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Matrix:
    """[outputs, inputs]; two of them where one gates the other."""

    what: str
    outputs: int
    inputs: int
    gated: bool = False


class DraftShape(BaseModel):
    """A dense decoder, in the words of its config.json."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    hidden_size: _Size
    intermediate_size: _Size
    num_attention_heads: _Size
    num_key_value_heads: _Size | None = None
    head_dim: _Size | None = None
    vocab_size: _Size

    @property
    def kv_heads(self) -> int:
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    def matrices(self) -> tuple[Matrix, ...]:
        """Of a layer, in their order."""
        hidden, queries = self.hidden_size, self.num_attention_heads * self.head_size
        return (
            Matrix("qkv", queries + 2 * self.kv_heads * self.head_size, hidden),
            Matrix("out", hidden, queries),
            Matrix("gate_up", self.intermediate_size, hidden, gated=True),
            Matrix("down", hidden, self.intermediate_size),
        )


def read(path: Path) -> DraftShape:
    """Of a model's folder or its config.json; ConfigurationError names what is missing."""
    file = path / "config.json" if path.is_dir() else path
    try:
        return DraftShape.model_validate_json(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(
            f"{file}: a readable config.json of a draft model is required: {error.strerror}"
        ) from error
    except ValidationError as error:
        raise from_validation(str(file), error) from error
