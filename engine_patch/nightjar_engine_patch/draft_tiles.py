"""Tile sizes of the fused draft pass on this GPU: of the shipped table, and of the file that extends it."""

from dataclasses import dataclass
from pathlib import Path

from nightjar_engine_patch.errors import RefusalError
from nightjar_engine_patch.settings import KEY, EngineSettings
from nightjar_kernels import tiles
from nightjar_kernels.tiles import DEFAULT_GPU, SHIPPED, Table, Tiles


@dataclass(frozen=True)
class GpuTiles:
    """What was looked up at start-up, once for the life of the engine."""

    tiles: Tiles
    told: str
    """Whose they are and where they come from."""


def given_by(settings: EngineSettings) -> Table:
    """The GPUs of the file that the settings name; RefusalError says what is wrong with it."""
    if settings.draft_tiles is None:
        return {}
    try:
        return tiles.read(Path(settings.draft_tiles))
    except tiles.TilesError as error:
        raise RefusalError(f"additional_config.{KEY}.draft_tiles: {error}") from error


def tiles_of(gpu: str, settings: EngineSettings) -> GpuTiles:
    """For a GPU by the name that CUDA gives it: of the file, or else shipped, or else those of `DEFAULT_GPU`."""
    given = given_by(settings)
    name = gpu if gpu in given or gpu in SHIPPED else DEFAULT_GPU
    origin = f"from {settings.draft_tiles}" if name in given else "shipped"
    want = "" if name == gpu else f", for want of {gpu}'s: `nightjar profile --kernels` measures them"
    return GpuTiles({**SHIPPED, **given}[name], f"{name}'s, {origin}{want}")
