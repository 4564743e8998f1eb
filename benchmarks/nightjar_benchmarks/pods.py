"""Several pods at once, for what is compared between them."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from time import monotonic

from nightjar_operator.local.pod import LocalPod

# After their last message vLLM's processes go on spinning for a second (SpinCondition, shm_broadcast.py), on the very
# core where the worker of the next pod computes.
QUIET_SECONDS = 1.25

MakePod = Callable[[threading.Event], LocalPod]


@contextmanager
def started(makers: Mapping[str, MakePod]) -> Iterator[dict[str, tuple[LocalPod, float]]]:
    """Start every pod at the same time: loading libraries leaves a core idle. Pods, and seconds until each was ready.

    A maker is given the event that its pod has to stop for. When one does not start, or somebody presses Ctrl-C, the
    others are stopped too and the first error is raised.
    """
    stop = threading.Event()
    pods = {name: make(stop) for name, make in makers.items()}
    begun = monotonic()

    def start(name: str) -> float:
        try:
            pods[name].__enter__()
        except BaseException:
            stop.set()
            raise
        return monotonic() - begun

    with ThreadPoolExecutor(len(pods)) as threads:
        starting = {name: threads.submit(start, name) for name in pods}
        try:
            _wait(list(starting.values()), stop)
            yield {name: (pods[name], each.result()) for name, each in starting.items()}
        finally:
            ready = [pods[name] for name, each in starting.items() if each.exception() is None]
            for stopping in [threads.submit(pod.__exit__, None, None, None) for pod in ready]:
                stopping.result()


def _wait(starting: Sequence[Future[float]], stop: threading.Event) -> None:
    try:
        wait(starting)
    except KeyboardInterrupt:
        stop.set()
        raise
    errors = [error for each in starting if (error := each.exception()) is not None]
    # What went wrong, rather than that the others were interrupted for it.
    errors.sort(key=lambda error: isinstance(error, KeyboardInterrupt))
    if errors:
        raise errors[0]
