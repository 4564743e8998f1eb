#!/usr/bin/env python3
"""Time on the device, by events, and the form of a record."""

import datetime as dt
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton

Work = Callable[[], object]


def queued_us(works: Sequence[Work], repeats: int) -> list[list[float]]:
    """Device microseconds of every run of every work, one after another in turn (A B A B …).

    The device is kept busy while a run is launched, so the host's launch time is not part of it.
    """
    for work in works:
        work()
    times: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for index, work in enumerate(works):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda._sleep(1_000_000)  # noqa: SLF001 -- about 0.5 ms
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times[index].append(start.elapsed_time(end) * 1e3)
    return times


def idle_us(work: Work, repeats: int) -> list[float]:
    """Microseconds between events around a run on an idle device: the host's launch time is part of it."""
    work()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return times


def captured_us(work: Work, launches: int, repeats: int) -> list[float]:
    """Device microseconds of one of `launches` runs inside a CUDA graph, per replay."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            work()
    (times,) = queued_us([graph.replay], repeats)
    return [t / launches for t in times]


def host_ms(work: Work) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def spread(times: Sequence[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "median": round(statistics.median(ordered), 4),
        "p90": round(ordered[int(0.9 * (len(ordered) - 1))], 4),
        "p99": round(ordered[int(0.99 * (len(ordered) - 1))], 4),
        "min": round(ordered[0], 4),
        "max": round(ordered[-1], 4),
        "n": len(ordered),
    }


def record(command: str, commit: str, figures: dict[str, Any]) -> dict[str, Any]:
    device = torch.cuda.get_device_properties(0)
    return {
        "command": command,
        "commit": commit,
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "host": {
            "device": device.name,
            "device_memory_bytes": device.total_memory,
            "cpus": os.cpu_count(),
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "triton": triton.__version__,
        },
        "figures": figures,
    }
