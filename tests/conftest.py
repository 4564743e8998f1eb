"""What tests of several components share."""

import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from nightjar_benchmarks.control_plane import ControlPlane, NoControlPlaneError, running
from nightjar_benchmarks.stopping import interrupted_by_signals

ROOT = Path(__file__).parents[1]

# On a busy machine any example may take its time, and so may making it up.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


# Shells start what runs in the background with Ctrl-C ignored, and programs under test would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    return ROOT


# Fields by which a request gets other tokens than `continuation`, the target's own. Of the API and of
# vllm.SamplingParams alike: what is true on CPUs is asked on GPUs too.
STEERING: dict[str, Callable[[list[int]], dict[str, Any]]] = {
    "repetition": lambda _: {"repetition_penalty": 2.0},
    "presence and frequency": lambda continuation: {
        "presence_penalty": 1.5,
        "frequency_penalty": 0.7,
        "allowed_token_ids": continuation[:12],
    },
    "min_tokens": lambda continuation: {"min_tokens": 25, "stop_token_ids": [continuation[3]]},
}
SCHEMA = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}, "size": {"enum": ["small", "large"]}},
    "required": ["ready", "size"],
    "additionalProperties": False,
}


@pytest.fixture(params=STEERING)
def steering(request: pytest.FixtureRequest) -> Callable[[list[int]], dict[str, Any]]:
    """`steering(continuation)`: what steers a request."""
    return STEERING[request.param]


@pytest.fixture
def grammars() -> Sequence[dict[str, Any]]:
    """What structured output is asked for."""
    return ({"json": SCHEMA}, {"regex": "(left|right){12}"}, {"choice": ["yes, of course", "no, never"]})


@pytest.fixture
def fits() -> Callable[[dict[str, Any], str], bool]:
    """`fits(grammar, text)`: whether it is what was asked for."""

    def fits(grammar: dict[str, Any], text: str) -> bool:
        match grammar:
            case {"json": _}:
                answer = json.loads(text)
                return set(answer) == {"ready", "size"} and answer["size"] in {"small", "large"}
            case {"regex": pattern}:
                return re.fullmatch(pattern, text) is not None
            case _:
                return text in grammar["choice"]

    return fits


@pytest.fixture(params=[{"logit_bias": {5: 2.0}}, {"min_p": 0.1, "temperature": 1.0}], ids=["logit_bias", "min_p"])
def unverifiable(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Fields under which vLLM verifies no drafts."""
    fields: dict[str, Any] = request.param
    return fields


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """One real Kubernetes API for all tests of a session: tests keep to namespaces of their own."""
    try:
        # Its processes have sessions of their own and would outlive tests that somebody stops.
        with interrupted_by_signals(), running(ROOT) as plane:
            yield plane
    except NoControlPlaneError as error:
        pytest.skip(str(error))


@pytest.fixture
def controllers(control_plane: ControlPlane) -> None:
    """Asked for by tests of what controllers do, such as a namespace's service account."""
    if not control_plane.has_controllers:
        pytest.skip("a control plane with controllers is required: set KUBECONFIG to a throw-away cluster")
