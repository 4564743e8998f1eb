"""How the kernels of a draft's pass cut their work, by GPU: that changes how long they take, never what they compute.

`tiles.json` is the table that is shipped. A file of the same form, as `nightjar profile --kernels` writes it, extends
it. Sizes are in elements, and powers of two, as Triton's blocks are.
"""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from pydantic_core import ErrorDetails

# Whose tiles a GPU has that is not in the table, by the name that CUDA gives it.
DEFAULT_GPU = "NVIDIA H200"


class TilesError(ValueError):
    """A table that no kernel could use: the message names the file, what is required and what was found."""


def _power_of_two(found: int) -> int:
    if found & (found - 1):
        raise ValueError(f"a power of two is required, found {found}")
    return found


_Size = Annotated[int, AfterValidator(_power_of_two)]
# What a block of tensor cores' operands has at least, and what no program has room for.
_TileSize = Annotated[_Size, Field(ge=16, le=4096)]
_Warps = Annotated[_Size, Field(ge=1, le=32)]
_Positive = Annotated[int, Field(ge=1)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _LinearTile(_Part):
    tokens: _Positive | None = None
    """The most that it is for; any number if absent."""
    inputs: _Positive | None = None
    """The longest rows of a matrix that it is for; any if absent."""

    def is_for(self, tokens: int, inputs: int) -> bool:
        return (self.tokens is None or tokens <= self.tokens) and (self.inputs is None or inputs <= self.inputs)


class RowTile(_LinearTile):
    """Without tensor cores: a program reads whole rows of the matrix in one go."""

    kernel: Literal["rows"] = "rows"
    elements: Annotated[_Size, Field(ge=16, le=65536)]
    """Of the matrix, what a program reads."""
    rows: Annotated[_Size, Field(ge=1, le=1024)]
    """The most outputs of a program."""
    programs: _Positive
    """How many are wanted rather than more outputs of each: the multiprocessors of the GPU."""

    def rows_at_once(self, inputs: int, outputs: int, *, gated: bool) -> int:
        """Outputs of a program, a power of two; 0 where not even one row of the matrix fits."""
        rows = min(self.elements // padded(inputs) // (2 if gated else 1), self.rows)
        while rows > 1 and -(-outputs // rows) < self.programs:
            rows //= 2
        return rows


class ShareTile(_LinearTile):
    """On tensor cores: each warp of a program multiplies a share of the inputs, piece by piece."""

    kernel: Literal["shares"] = "shares"
    outputs: _TileSize
    """Of a program."""
    share_inputs: _TileSize
    """What a warp multiplies at a time; the next as many are on their way meanwhile."""
    warps: _Warps
    """Shares: the inputs are split so many times within a program."""


LinearTile = Annotated[RowTile | ShareTile, Field(discriminator="kernel")]


class HeadTile(_Part):
    """Of the draft's output matrix."""

    tokens: Annotated[_TileSize, Field(le=512)]
    """Logits that a program has at a time; a program looks at 512 (`greedy_head.PART_TOKENS`)."""
    inputs: _TileSize
    """What it multiplies at a time."""
    stages: Annotated[int, Field(ge=1, le=8)]
    """Pieces of so many inputs that are under way."""
    warps: _Warps = 4


class AttentionTile(_Part):
    """Of the attention to a context."""

    tokens: _TileSize
    """Of the context, what a program looks at at a time."""
    part: _Positive
    """Tokens of the context that are worth a program of their own."""
    warps: _Warps = 4


class Tiles(_Part):
    """What one GPU has."""

    source: str
    """How they were found."""
    linear: tuple[LinearTile, ...]
    """The first that is for a matrix and a number of tokens is taken."""
    head: HeadTile
    attention: AttentionTile
    measured_us: Mapping[str, Mapping[str, float | None]] = {}
    """What they were chosen from, by what was measured and by tile, None for one that does not run; for people."""

    @field_validator("linear")
    @classmethod
    def _serves_everything(cls, linear: tuple[LinearTile, ...]) -> tuple[LinearTile, ...]:
        last = linear[-1] if linear else None
        if not isinstance(last, ShareTile) or last.tokens is not None or last.inputs is not None:
            found = "nothing" if last is None else last.model_dump(exclude_none=True)
            raise ValueError(
                f'a last one of kernel "shares" without tokens and inputs, which is for all the rest, is required, '
                f"found {found}"
            )
        return linear

    def of_matrix(self, tokens: int, inputs: int, *, gated: bool = False) -> RowTile | ShareTile:
        """For a matrix of so many inputs, or two of them where one gates the other."""
        return next(
            one
            for one in self.linear
            if one.is_for(tokens, inputs) and (isinstance(one, ShareTile) or one.rows_at_once(inputs, 1, gated=gated))
        )


Table = Mapping[str, Tiles]
"""By the name that CUDA gives a GPU."""

_TABLE = TypeAdapter(dict[str, Tiles])


def parse(text: str | bytes, where: str) -> dict[str, Tiles]:
    """The GPUs of one file; TilesError has a line for each thing that is wrong."""
    try:
        return _TABLE.validate_json(text)
    except ValidationError as error:
        raise TilesError("\n".join(f"{where}: {_line(one)}" for one in error.errors(include_url=False))) from error


def read(path: Path) -> dict[str, Tiles]:
    """The GPUs of a file; TilesError names it and what is wrong."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TilesError(f"{path}: a readable file of tile sizes is required: {error.strerror}") from error
    return parse(text, str(path))


def dump(table: Table) -> str:
    """The text of a file."""
    return _TABLE.dump_json(dict(table), indent=1).decode() + "\n"


def padded(inputs: int) -> int:
    """The length of rows as Triton has blocks."""
    return 1 << (inputs - 1).bit_length()


def _line(problem: ErrorDetails) -> str:
    field, message = ".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "json_invalid":
        return message
    if problem["type"] == "missing":
        return f"{field}: required, found nothing"
    # Our own validators say what was found.
    found = "" if problem["type"] == "value_error" else f", found {problem['input']!r}"
    return f"{field or 'the file'}: {message}{found}"


SHIPPED: Table = parse((files(__package__) / "tiles.json").read_bytes(), "tiles.json")
DEFAULT = SHIPPED[DEFAULT_GPU]
