"""Free TCP ports on the loopback, which stay free until their server takes them.

A port that the system hands out (bind to 0) may be the source port of somebody's next connection, and then the
server that it was meant for cannot listen. Ports below the range of source ports have no such rival.
"""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from nightjar_api.errors import ConfigurationError

_SOURCE_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 10_000
_TRIES = 200


def free_port() -> int:
    """A port that is free now, and so is the one after it, where a sidecar listens."""
    return free_ports(1)[0]


def free_ports(number: int) -> list[int]:
    """`number` of such pairs without a port in common; the first port of each."""
    with ExitStack() as held:
        return [_hold_pair(held) for _ in range(number)]


def _hold_pair(held: ExitStack) -> int:
    first_source_port = int(_SOURCE_PORTS.read_text().split()[0])
    for _ in range(_TRIES):
        # Random, so that programs that look at the same time seldom find the same.
        port = random.randrange(_LOWEST, first_source_port - 1)  # noqa: S311 - no secret
        first = held.enter_context(socket.socket())
        second = held.enter_context(socket.socket())
        try:
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
        except OSError:
            continue
        return port
    raise ConfigurationError(
        f"two neighbouring free TCP ports from {_LOWEST} to {first_source_port - 1} on 127.0.0.1 are required,"
        f" found none in {_TRIES} tries"
    )
