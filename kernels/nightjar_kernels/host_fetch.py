"""Copies from pinned host memory between which others get their turn at the device's copy engine.

What one stream gives a copy engine is done back to back: a step's inputs, a few kilobytes, would wait until all of a
draft's weights before them have passed. Here the copy is in pieces, and after each the stream writes a number to the
device's memory. That is no work of the copy engine's, so it turns to who else waits.
"""

import weakref
from typing import Any

import torch

from nightjar_kernels.driver_calls import call

# How long another copy may have to wait: 0.15 ms of a bus of 55 GB/s. Smaller pieces take longer in all.
PIECE_BYTES = 8 << 20


class HostFetch:
    """One copy that can be done again and again: a graph, for a thread that gives the driver piece after piece has to
    wait for the interpreter's lock as often.
    """

    def __init__(self, host: torch.Tensor, out: torch.Tensor, driver: Any | None) -> None:
        """Of `host`, pinned memory of the host, to `out`: uint8 [n], the same for as long as this is used.

        `out` need only be mapped now and while it is filled.

        driver: the module cuda.bindings.driver, for memory of a device; where `out` is no such memory it is not asked

        ValueError for anything else, MemoryCallError when the driver refuses.
        """
        _check(host, out, driver)
        self._host, self._out = host, out
        self._driver: Any = driver
        if out.is_cuda:
            self._turn = torch.zeros(1, dtype=torch.int32, device=out.device)
            self._graph = self._captured(driver)
            self._forget = weakref.finalize(self, call, driver, "cuGraphExecDestroy", self._graph)

    def run(self) -> None:
        """Copy, on the current stream, without waiting for it."""
        if not self._out.is_cuda:
            self._out.copy_(self._host)
            return
        stream = torch.cuda.current_stream(self._out.device)
        call(self._driver, "cuGraphLaunch", self._graph, self._driver.CUstream(stream.cuda_stream))

    def close(self) -> None:
        """Once nothing is being copied; no `run` may follow."""
        if self._out.is_cuda:
            self._forget()

    def _captured(self, driver: Any) -> Any:
        stream = torch.cuda.Stream(self._out.device)
        handle = driver.CUstream(stream.cuda_stream)
        # Other threads of the process may go on as if nothing were captured.
        call(driver, "cuStreamBeginCapture", handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            self._enqueue(driver, handle)
        finally:
            graph = call(driver, "cuStreamEndCapture", handle)
        instance = call(driver, "cuGraphInstantiate", graph, 0)
        call(driver, "cuGraphDestroy", graph)
        # Or the first launch does it, in front of somebody who waits.
        call(driver, "cuGraphUpload", instance, handle)
        stream.synchronize()
        return instance

    def _enqueue(self, driver: Any, stream: Any) -> None:
        size = self._host.numel()
        for start in range(0, size, PIECE_BYTES):
            length = min(PIECE_BYTES, size - start)
            source, target = (tensor.data_ptr() + start for tensor in (self._host, self._out))
            call(driver, "cuMemcpyHtoDAsync", target, source, length, stream)
            call(driver, "cuStreamWriteValue32", stream, self._turn.data_ptr(), 0, 0)


def _check(host: torch.Tensor, out: torch.Tensor, driver: Any | None) -> None:
    for name, tensor in (("host", host), ("out", out)):
        if tensor.dtype != torch.uint8 or tensor.dim() != 1 or not tensor.is_contiguous():
            raise ValueError(
                f"{name} as adjacent uint8 [n] is required, found {tensor.dtype} {tuple(tensor.shape)} with strides "
                f"{tensor.stride()}"
            )
    if host.shape != out.shape:
        raise ValueError(f"as many bytes in both are required, found {host.numel()} and {out.numel()}")
    if out.is_cuda and driver is None:
        raise ValueError(f"a driver is required to copy to a device, found none for {out.device}")
    if out.is_cuda and not host.is_pinned():
        raise ValueError(f"pinned memory of the host is required to copy from, found memory of {host.device}")
