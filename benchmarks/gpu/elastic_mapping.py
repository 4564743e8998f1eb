#!/usr/bin/env python3
"""What mapping granules costs, and whether it stalls a thread that launches kernels meanwhile."""

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from device_time import Work, host_ms, spread

from nightjar_kernels.physical_pool import Granules, Range
from nightjar_kernels.physical_pool.cuda import CudaMemory

MIB = 1 << 20
TOTAL = 1 << 30
GRANULE_MIB = (2, 16, 32, 64, 128, 256)


def mapping_costs() -> dict[str, Any]:
    rows = [_costs(mib * MIB) for mib in GRANULE_MIB]
    best = min(row["range_map_ms"]["median"] + row["range_unmap_ms"]["median"] for row in rows)
    return {"value": round(best, 4), "unit": "ms", "raw": rows}


def _costs(size: int, repeats: int = 7) -> dict[str, Any]:
    memory, count = CudaMemory(0), TOTAL // size
    times: dict[str, list[float]] = {}

    def timed(name: str, work: Work) -> None:
        times.setdefault(name, []).append(host_ms(work))

    handles: list[int] = []
    timed("create_ms", lambda: handles.extend(memory.create(size) for _ in range(count)))
    base = memory.reserve(TOTAL)

    def for_each(call: Callable[[int, int], None]) -> None:
        for slot, handle in enumerate(handles):
            call(base + slot * size, handle)

    for unmap_at_once in [False, True] * repeats:
        timed("map_ms", lambda: for_each(lambda address, handle: memory.map(address, size, handle)))
        timed("allow_access_ms", lambda: memory.allow_access(base, TOTAL))
        memory.tensor(base, TOTAL).fill_(1)
        torch.cuda.synchronize()
        if unmap_at_once:
            timed("unmap_at_once_ms", lambda: memory.unmap(base, TOTAL))
        else:
            timed("unmap_each_ms", lambda: for_each(lambda address, _: memory.unmap(address, size)))
    memory.free(base, TOTAL)
    timed("release_ms", lambda: [memory.release(handle) for handle in handles])
    pool = Granules(memory, granule_bytes=size, count=count)
    kv = pool.reserve("target KV", count)
    for _ in range(repeats):
        timed("range_map_ms", lambda: kv.map(0, count))
        timed("range_unmap_ms", lambda: kv.unmap(0, count))
    pool.close()
    return {"granule_mib": size // MIB, **{name: spread(values) for name, values in times.items()}}


def stalls() -> dict[str, Any]:
    """Steps of a launching thread, alone and while another thread maps and unmaps 1 GiB without a pause."""
    rows = []
    for name, step in _loads().items():
        for _ in range(20):
            step()
        rows.append({"load": name, "granule_mib": None, "step_ms": spread([host_ms(step) for _ in range(300)])})
        rows.extend({"load": name, "granule_mib": mib, **_beside_mapping(step, mib * MIB)} for mib in GRANULE_MIB[:4])
    alone = {row["load"]: row["step_ms"]["median"] for row in rows if row["granule_mib"] is None}
    worst = max(row["step_ms"]["max"] - alone[row["load"]] for row in rows if row["granule_mib"] in GRANULE_MIB[1:])
    return {
        "value": round(worst, 4),
        "unit": "ms",
        "raw": rows,
    }


def _loads() -> dict[str, Work]:
    weights = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    small = torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    out = weights @ weights
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(30):
            torch.mm(weights, weights, out=out)
    stream = torch.cuda.current_stream()

    def kernel() -> None:
        torch.mm(weights, weights, out=out)
        stream.synchronize()

    def replay() -> None:
        graph.replay()
        stream.synchronize()

    def launches() -> None:
        for _ in range(100):
            small.add_(1)
        stream.synchronize()

    return {"one 0.2 ms kernel": kernel, "a graph of 30": replay, "100 eager launches": launches}


def _beside_mapping(step: Work, size: int) -> dict[str, Any]:
    pool = Granules(CudaMemory(0), granule_bytes=size, count=TOTAL // size)
    kv = pool.reserve("target KV", pool.total)
    stop = threading.Event()
    cycles: list[float] = []
    helper = threading.Thread(target=_map_until, args=(kv, stop, cycles))
    helper.start()
    until = time.perf_counter() + 0.7
    steps = []
    while time.perf_counter() < until:
        steps.append(host_ms(step))
    stop.set()
    helper.join()
    pool.close()
    return {"step_ms": spread(steps), "map_and_unmap_ms": round(statistics.median(cycles), 3), "cycles": len(cycles)}


def _map_until(kv: Range, stop: threading.Event, cycles: list[float]) -> None:
    while not stop.is_set():
        start = time.perf_counter()
        kv.map(0, kv.capacity)
        kv.unmap(0, kv.capacity)
        cycles.append((time.perf_counter() - start) * 1e3)
