"""Asks a container's readiness probe, and says in full why a container did not get ready."""

import re
from dataclasses import dataclass

import httpx

from nightjar_operator.local.process import Process
from nightjar_operator.pod import Probe

_LAST_LINES = 20
_SEARCHED_LINES = 400
_ERROR = re.compile(r"(?:^|\] )([\w.]*(?:Error|Exception): .+)")


def answers(probe: Probe) -> bool:
    """Whether the probe answers 200 now; waits at most 2 s."""
    try:
        # The loopback is never behind a proxy, whatever the shell says.
        with httpx.Client(trust_env=False, timeout=2) as client:
            return client.get(f"http://127.0.0.1:{probe.port}{probe.path}").status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


@dataclass(frozen=True)
class SettingsState:
    """What a sidecar's /status says about its settings; `error` is about a file it refused."""

    revision: str
    error: str | None


def settings_in_force(status_url: str) -> SettingsState | None:
    """None while the sidecar does not answer."""
    try:
        with httpx.Client(trust_env=False, timeout=2) as client:
            found = client.get(status_url).raise_for_status().json()["settings"]
    except httpx.HTTPError:
        return None
    return SettingsState(found["revision"], found["error"])


def exited(process: Process, code: int | None, when: str) -> str:
    return f"{process.name} exited {when}, exit code {code}{_log(process)}"


def late(process: Process, probe: Probe, seconds: float) -> str:
    return f"{process.name}: GET {probe.path} is required to answer 200 within {seconds:g} s, it did not{_log(process)}"


def split_log(lines: list[str]) -> tuple[list[str], list[str]]:
    """Errors named before the last lines, each once, and the last lines.

    vLLM's server ends with a traceback of its own; why its engine process gave up stands further up.
    """
    last = lines[-_LAST_LINES:]
    found = (_ERROR.search(line) for line in lines[:-_LAST_LINES])
    named = dict.fromkeys(match[1] for match in found if match is not None)
    return [error for error in named if not any(error in line for line in last)], last


def _log(process: Process) -> str:
    causes, last = split_log(process.last_lines(_SEARCHED_LINES))
    if not last:
        return f"; its log is empty ({process.log})"
    why = f"; earlier errors:{_block(causes)}\n" if causes else "; "
    return f"{why}its last log lines ({process.log}):{_block(last)}"


def _block(lines: list[str]) -> str:
    return "".join(f"\n  {line}" for line in lines)
