"""The tiles of this machine's GPU, measured and written: `nightjar profile --kernels`."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from nightjar_api.errors import ConfigurationError
from nightjar_benchmarks.profile import draft_shape, tile_search
from nightjar_benchmarks.profile.draft_shape import DraftShape
from nightjar_benchmarks.profile.tile_search import Case, label
from nightjar_kernels import tiles
from nightjar_kernels.tiles import DEFAULT, SHIPPED, Tiles, TilesError


def measure(draft: Path, out: Path, console: Console) -> None:
    """Extend the table `out`, or begin it, by this GPU; ConfigurationError where that cannot be."""
    shape = draft_shape.read(draft)
    table = _written(out)
    _check_cuda()
    import torch
    import triton

    gpu = torch.cuda.get_device_name()
    multiprocessors = torch.cuda.get_device_properties().multi_processor_count
    console.print(f"{gpu}, a draft of {shape!r}", markup=False)
    found = _timed(shape, multiprocessors, {**SHIPPED, **table}.get(gpu, DEFAULT), console)
    chosen = tile_search.choose(found, shape, f"nightjar profile --kernels, {shape!r}, Triton {triton.__version__}")
    out.write_text(tiles.dump({**table, gpu: chosen}), encoding="utf-8")
    for case, times in found.items():
        console.print(_told(case, times), markup=False)
    console.print(
        f"{out} has {gpu}. Name it to the engine by where that finds it:\nengine:\n  draftTiles: /…", markup=False
    )


def _check_cuda() -> None:
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"--kernels: PyTorch and Triton are required, as the engine's image has them, found no {error.name}"
        ) from error
    if not torch.cuda.is_available():
        raise ConfigurationError("--kernels: a CUDA device is required to time kernels on, found none")


def _timed(shape: DraftShape, multiprocessors: int, present: Tiles, console: Console) -> dict[Case, list[float | None]]:
    from nightjar_benchmarks.profile import tile_timing

    cases = tile_search.cases(shape, multiprocessors, present)
    kernels = tile_timing.Kernels(shape, "cuda", multiprocessors)
    jobs = dict.fromkeys(job for case in cases for tile in case.candidates for job in tile_timing.jobs_of(case, tile))
    console.print(f"compiling {len(jobs)} kernels …", markup=False)
    refused = tile_timing.compile_all(kernels, list(jobs))
    for (part, tile), why in refused.items():
        console.print(f"does not run here: {part.what}, {part.tokens} tokens, {label(tile)}: {why}", markup=False)
    return {
        case: tile_timing.time_case(kernels, refused, case)
        for case in track(cases, "timing", console=console, transient=True)
    }


def _written(out: Path) -> tiles.Table:
    """What is there already, of other GPUs too; that it cannot be written is said before the measuring, not after."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--out: a file that can be written is required, found {out}: {error}") from error
    is_new = not out.exists()
    if not os.access(out.parent if is_new else out, os.W_OK):
        raise ConfigurationError(f"--out: a file that can be written is required, found {out}")
    try:
        return {} if is_new else tiles.read(out)
    except TilesError as error:
        raise ConfigurationError(f"--out: a new file or a table of tile sizes is required: {error}") from error


def _told(case: Case, times: Sequence[float | None]) -> str:
    ran = {label(tile): us for tile, us in zip(case.candidates, times, strict=True) if us is not None}
    fastest = min(ran, key=ran.__getitem__)
    now = "does not run" if times[0] is None else f"{times[0]:.2f} µs"
    return f"{case.what}: {ran[fastest]:.2f} µs ({fastest}); as it is {now}"
