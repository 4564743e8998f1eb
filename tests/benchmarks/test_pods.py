import pytest

from nightjar_benchmarks.pods import started
from nightjar_operator.errors import NotReadyError


class FakePod:
    """Stands for a LocalPod: is ready at once, never, or fails."""

    def __init__(self, stop, kind):
        self.stop, self.kind, self.log = stop, kind, []

    def __enter__(self):
        if self.kind == "fails":
            raise NotReadyError("the engine exited with code 1", 1)
        if self.kind == "waits":
            assert self.stop.wait(300)
            raise KeyboardInterrupt
        self.log.append("in")
        return self

    def __exit__(self, *_):
        self.log.append("out")


def makers(kinds, made):
    def maker(name, kind):
        return lambda stop: made.setdefault(name, FakePod(stop, kind))

    return {name: maker(name, kind) for name, kind in kinds.items()}


def test_all_pods_run_inside_the_block_and_none_after_it():
    made = {}
    with started(makers({"a": "ready", "b": "ready"}, made)) as pods:
        assert [pod for pod, _ in pods.values()] == [made["a"], made["b"]]
        assert [pod.log for pod in made.values()] == [["in"], ["in"]]
    assert [pod.log for pod in made.values()] == [["in", "out"], ["in", "out"]]


def test_one_that_does_not_start_stops_those_that_run_and_those_that_wait_and_says_why():
    made = {}
    kinds = {"slow": "waits", "ready": "ready", "broken": "fails"}
    with pytest.raises(NotReadyError, match="code 1"), started(makers(kinds, made)):
        pytest.fail("the block runs only when all are ready")
    assert made["ready"].log == ["in", "out"]
    assert made["slow"].stop.is_set()


def test_an_error_inside_the_block_stops_all_pods():
    made = {}
    with pytest.raises(ValueError, match="mine"), started(makers({"a": "ready"}, made)):
        raise ValueError("mine")
    assert made["a"].log == ["in", "out"]
