"""Which tile sizes are tried for a draft, and which of them a GPU gets. Pure.

A case is what one choice is made for: the matrices of a layer whose rows are as long, padded, at one number of tokens;
the output matrix; the attention. Its time is the sum over what it consists of.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.profile.draft_shape import DraftShape, Matrix
from nightjar_kernels.tiles import AttentionTile, HeadTile, RowTile, ShareTile, Tiles, padded

Tile = RowTile | ShareTile | HeadTile | AttentionTile

# One token of each of 1, 2 … 16 requests, or two in a first pass.
TOKENS = (1, 2, 4, 8, 16, 32)
# Beyond, a program that keeps whole rows in registers has too much to compute.
MOST_ROW_TOKENS = 4
CONTEXTS = (512, 4096)
# Times that are so near to one another are the same: then what stands first is taken, and a table stays small.
NOISE = 0.02

_SHARES = ((16, 256, 4), (16, 128, 4), (16, 128, 8), (16, 256, 8), (16, 128, 16), (32, 128, 4), (32, 128, 8))
_HEADS = (
    *((64, 64, 4, 4), (64, 128, 4, 4), (128, 64, 3, 4), (128, 64, 5, 4), (128, 32, 6, 4)),
    *((128, 128, 3, 4), (128, 128, 3, 8), (256, 64, 3, 8)),
)


@dataclass(frozen=True)
class Part:
    """Something that is launched: a matrix of a layer, the output matrix ("head"), or "attention" to a context."""

    what: str
    tokens: int
    context: int = 0


@dataclass(frozen=True)
class Case:
    """`candidates[0]` is what the GPU would have now."""

    what: str
    parts: tuple[Part, ...]
    candidates: tuple[Tile, ...]


def cases(shape: DraftShape, multiprocessors: int, present: Tiles) -> list[Case]:
    """All there is to time."""
    linear = [
        _linear(tokens, matrices, multiprocessors, present)
        for matrices in _by_inputs(shape).values()
        for tokens in TOKENS
    ]
    heads = [HeadTile(tokens=a, inputs=b, stages=c, warps=d) for a, b, c, d in _HEADS]
    attentions = [AttentionTile(tokens=tokens, part=part) for tokens in (32, 64, 128) for part in (64, 128, 256)]
    contexts = tuple(Part("attention", 1, context) for context in CONTEXTS)
    return [
        *linear,
        Case("head", (Part("head", 1),), _distinct([present.head, *heads])),
        Case("attention", contexts, _distinct([present.attention, *attentions])),
    ]


def choose(
    found: Mapping[Case, Sequence[float | None]], shape: DraftShape, source: str, *, noise: float = NOISE
) -> Tiles:
    """The fastest of each case; ConfigurationError where none of one runs.

    found: microseconds of each candidate of each case, None for one that does not run on this GPU
    noise: by how much, of its time, another must be faster than one before it
    """
    best = {case.what: _best(case, times, noise) for case, times in found.items()}
    measured = {
        case.what: {label(tile): us for tile, us in zip(case.candidates, times, strict=True)}
        for case, times in found.items()
    }
    given = {"linear": tuple(_rows(best, shape)), "head": best["head"], "attention": best["attention"]}
    return Tiles.model_validate({"source": source, **given, "measured_us": measured})


def label(tile: Tile) -> str:
    """In one line."""
    return ", ".join(f"{name} {value}" for name, value in tile.model_dump(exclude_none=True).items())


def _linear(tokens: int, matrices: Sequence[Matrix], multiprocessors: int, present: Tiles) -> Case:
    longest = max(matrix.inputs for matrix in matrices)
    now = present.of_matrix(tokens, longest, gated=any(matrix.gated for matrix in matrices))
    rows = [
        RowTile(elements=elements, rows=rows, programs=multiprocessors)
        for elements in (16384, 32768)
        for rows in (2, 4, 8)
    ]
    shares = [
        ShareTile(outputs=outputs, share_inputs=inputs, warps=warps)
        for outputs, inputs, warps in _SHARES
        # Half of a piece that is longer than the rows would be nothing but padding.
        if inputs * warps < 2 * longest
    ]
    tried = [
        now.model_copy(update={"tokens": None, "inputs": None}),
        *(rows if tokens <= MOST_ROW_TOKENS else []),
        # One token would fill an eighth of what tensor cores multiply.
        *(shares if tokens > 1 else []),
    ]
    return Case(
        _name(tokens, longest),
        tuple(Part(matrix.what, tokens) for matrix in matrices),
        _distinct([tile for tile in tried if _fits(tile, matrices)], matrices),
    )


def _fits(tile: Tile, matrices: Sequence[Matrix]) -> bool:
    return not isinstance(tile, RowTile) or 0 not in _launched(tile, matrices)


def _launched(tile: RowTile, matrices: Sequence[Matrix]) -> tuple[int, ...]:
    return tuple(tile.rows_at_once(one.inputs, one.outputs, gated=one.gated) for one in matrices)


def _distinct(tiles: Sequence[Tile], matrices: Sequence[Matrix] = ()) -> tuple[Tile, ...]:
    """One of those that come to the same."""
    found: dict[object, Tile] = {}
    for tile in tiles:
        found.setdefault(_launched(tile, matrices) if isinstance(tile, RowTile) else tile, tile)
    return tuple(found.values())


def _by_inputs(shape: DraftShape) -> dict[int, list[Matrix]]:
    """The matrices of a layer by the length that their rows are padded to, the shortest first."""
    found: dict[int, list[Matrix]] = {}
    for matrix in sorted(shape.matrices(), key=lambda one: one.inputs):
        found.setdefault(padded(matrix.inputs), []).append(matrix)
    return found


def _name(tokens: int, inputs: int) -> str:
    return f"linear, {inputs} inputs, {tokens} token{'s' if tokens > 1 else ''}"


def _best(case: Case, times: Sequence[float | None], noise: float) -> Tile:
    ran = [(tile, us) for tile, us in zip(case.candidates, times, strict=True) if us is not None]
    if not ran:
        tried = "; ".join(map(label, case.candidates))
        raise ConfigurationError(f"{case.what}: tile sizes that run on this GPU are required, found none among {tried}")
    fastest = min(us for _, us in ran)
    return next(tile for tile, us in ran if us <= (1 + noise) * fastest)


def _rows(best: Mapping[str, Tile], shape: DraftShape) -> Iterator[Tile]:
    """A table's, in the order in which they are looked at: neighbours that are the same are one."""
    groups = list(_by_inputs(shape).items())
    for index, (longest, matrices) in enumerate(groups):
        inputs = longest if index < len(groups) - 1 else None
        chosen = [best[_name(tokens, max(one.inputs for one in matrices))] for tokens in TOKENS]
        for position, (tokens, tile) in enumerate(zip(TOKENS, chosen, strict=True)):
            is_last = position == len(TOKENS) - 1
            if is_last or chosen[position + 1] != tile:
                yield tile.model_copy(update={"tokens": None if is_last else tokens, "inputs": inputs})
