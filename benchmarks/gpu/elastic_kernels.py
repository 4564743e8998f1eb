#!/usr/bin/env python3
"""Elastic memory's kernels and mapping calls on one GPU.

From the repository root, on a host with a GPU:

    PYTHONPATH=kernels python3 benchmarks/gpu/elastic_kernels.py --commit $(git rev-parse HEAD)

Every migration is checked against the specification before it is timed. The figures:

migration_vs_copy_bandwidth   bytes read and written per second over a device copy's of the same size, run in turn;
                              the worst of all caches and of all counts from 256 blocks on
remap_us                      256 rows of 256 blocks, device time of a launch, plain or in a graph, whichever is more
remap_on_an_idle_device_us    the same with the host's launch time, when nothing else keeps the device busy
mapping_ms                    to map and unmap 1 GiB, the best granule size
mapping_stall_ms              what the longest step takes more than the median alone while another thread maps and
                              unmaps 1 GiB without a pause; granules of 16 MiB or more, the worst load
"""

import argparse
import json
import random
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from device_time import captured_us, idle_us, queued_us, record, spread
from elastic_mapping import mapping_costs, stalls

from nightjar_kernels.block_table_remap import remap_block_tables
from nightjar_kernels.kv_migrate import migrate_blocks, naive, triton
from nightjar_kernels.moves import BlockMoves, block_moves

BLOCK_TOKENS = 16
POOL_BLOCKS = 4112  # the paper's pool


@dataclass(frozen=True)
class Shape:
    """One model's KV cache; a page is one layer's share of a block: K and V, bf16."""

    layers: int
    kv_heads: int
    head_size: int

    @property
    def page(self) -> int:
        return BLOCK_TOKENS * self.kv_heads * self.head_size * 2 * 2

    @property
    def block(self) -> int:
        return self.layers * self.page


TARGET = Shape(layers=28, kv_heads=4, head_size=128)  # 7B
DRAFT = Shape(layers=24, kv_heads=2, head_size=64)  # 0.5B


def caches(data: torch.Tensor) -> dict[str, torch.Tensor]:
    """Views [regions, blocks, bytes] of one buffer, as the engine would make them."""

    def outer(block: int) -> torch.Tensor:
        return data[: POOL_BLOCKS * block].view(1, POOL_BLOCKS, block)

    both = TARGET.block + DRAFT.block
    return {
        "7B block-outer": outer(TARGET.block),
        "7B layer-outer": data[: POOL_BLOCKS * TARGET.block].view(TARGET.layers, POOL_BLOCKS, TARGET.page),
        "0.5B block-outer": outer(DRAFT.block),
        "7B + 0.5B interleaved": outer(both),
        "7B beside 0.5B": outer(both)[:, :, : TARGET.block],
    }


def random_moves(count: int, seed: int) -> BlockMoves:
    ids = random.Random(seed).sample(range(POOL_BLOCKS), 2 * count)  # noqa: S311 -- block ids, no secrets
    pairs = list(zip(ids[:count], ids[count:], strict=True))
    return block_moves(pairs, num_blocks=POOL_BLOCKS, device="cuda")


def in_turn(function: Callable[..., None], arguments: list[tuple[Any, ...]]) -> Callable[[], None]:
    """Every run works on other data, so that none finds its own in the cache."""
    endless = cycle(arguments)
    return lambda: function(*next(endless))


def check(cache: torch.Tensor, moves: BlockMoves) -> None:
    expected = cache.clone()
    naive.migrate_blocks(expected, moves)
    migrate_blocks(cache, moves)
    if not torch.equal(cache, expected):
        sys.exit("the migration disagrees with its specification: no figures")


def migration(data: torch.Tensor, counts: list[int], repeats: int) -> list[dict[str, Any]]:
    rows = []
    spare = torch.empty_like(data)
    for name, cache in caches(data).items():
        regions, _, run = cache.shape
        for count in counts:
            moves = [random_moves(count, seed) for seed in range(8)]
            check(cache, moves[0])
            size = count * regions * run
            starts = range(0, data.numel() - size + 1, size)[:8]
            places = [(spare[start:][:size], data[start:][:size]) for start in starts]
            ours, copies = queued_us(
                [
                    in_turn(migrate_blocks, [(cache, m) for m in moves]),
                    in_turn(torch.Tensor.copy_, places),
                ],
                repeats,
            )
            moved, copied = (2 * size / statistics.median(t) / 1e6 for t in (ours, copies))
            rows.append(
                {
                    "cache": name,
                    "blocks": count,
                    "bytes_moved": size,
                    "migration_us": spread(ours),
                    "copy_us": spread(copies),
                    "migration_tb_s": round(moved, 3),
                    "copy_tb_s": round(copied, 3),
                    "ratio": round(moved / copied, 4),
                }
            )
    return rows


def tuning(data: torch.Tensor, repeats: int) -> list[dict[str, Any]]:
    rows = []
    moves = [random_moves(256, seed) for seed in range(8)]
    for name in ("7B block-outer", "7B layer-outer", "0.5B block-outer"):
        cache = caches(data)[name]
        for word in (4, 8):
            for tile in (2048, 4096, 8192, 16384, 32768, 65536):
                for warps in (2, 4, 8, 16):
                    if not 16 <= tile // (32 * warps) <= 512:
                        continue
                    triton.WORD_BYTES, triton.TILE_BYTES, triton.NUM_WARPS = word, tile, warps
                    (times,) = queued_us([in_turn(migrate_blocks, [(cache, m) for m in moves])], repeats)
                    size = 2 * 256 * cache.shape[0] * cache.shape[2]
                    rate = round(size / statistics.median(times) / 1e6, 3)
                    rows.append({"cache": name, "word": word, "tile": tile, "warps": warps, "tb_s": rate})
    return rows


def remap(repeats: int) -> list[dict[str, Any]]:
    rows = []
    moves = random_moves(256, 0)
    for num_blocks in (POOL_BLOCKS, 120_000):
        tables = [torch.randint(0, num_blocks, (256, 256), dtype=torch.int32, device="cuda") for _ in range(8)]
        lengths = torch.full((256,), 256, dtype=torch.int32, device="cuda")
        lookup = torch.randperm(num_blocks, device="cuda").to(torch.int32)
        work = in_turn(remap_block_tables, [(table, lengths, lookup) for table in tables])
        (queued,) = queued_us([work], repeats)
        rows.append(
            {
                "rows": 256,
                "blocks_per_row": 256,
                "num_blocks": num_blocks,
                "queued_us": spread(queued),
                "idle_us": spread(idle_us(work, repeats)),
                "captured_us": spread(captured_us(work, 8, repeats)),
                "lookup_idle_us": spread(idle_us(moves.lookup, repeats)),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--commit", default="unknown", help="what is measured; the host may have no git")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/elastic_kernels.json"))
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--tune", action="store_true", help="time tile sizes instead, and record nothing")
    args = parser.parse_args()
    data = torch.randint(0, 256, (POOL_BLOCKS * (TARGET.block + DRAFT.block),), dtype=torch.uint8, device="cuda")
    if args.tune:
        for row in sorted(tuning(data, 10), key=lambda row: (row["cache"], row["tb_s"])):
            print(row)
        return
    migrations = migration(data, [16, 64, 256, 512, 1024], args.repeats)
    remaps = remap(args.repeats)
    del data
    torch.cuda.empty_cache()
    figures = {
        "migration_vs_copy_bandwidth": {
            "value": min(row["ratio"] for row in migrations if row["blocks"] >= 256),
            "unit": "ratio",
            "raw": migrations,
        },
        "remap_us": {
            "value": max(row[kind]["median"] for row in remaps for kind in ("queued_us", "captured_us")),
            "unit": "µs",
            "raw": remaps,
        },
        "remap_on_an_idle_device_us": {
            "value": max(row["idle_us"]["median"] for row in remaps),
            "unit": "µs",
            "raw": [row["idle_us"] for row in remaps],
        },
        "mapping_ms": mapping_costs(),
        "mapping_stall_ms": stalls(),
    }
    command = f"python3 benchmarks/gpu/elastic_kernels.py --repeats {args.repeats}"
    args.out.write_text(json.dumps(record(command, args.commit, figures), indent=1) + "\n")
    for name, figure in figures.items():
        print(name, figure["value"], figure["unit"])
        for row in figure["raw"]:
            print("   ", row)


if __name__ == "__main__":
    main()
