"""How much memory of the host this process may still take."""

from pathlib import Path


def free_host_bytes(root: Path = Path("/")) -> int:
    """What the machine has available, or less if the process's control group (version 2) has a lower limit."""
    meminfo = dict(line.split(":") for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) << 10
    limit = root / "sys/fs/cgroup/memory.max"
    if not limit.exists() or limit.read_text(encoding="ascii").strip() == "max":
        return available
    return min(available, _left_in(limit.parent))


def _left_in(group: Path) -> int:
    limit, current = (int((group / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
    # What only caches files is given up when memory is short, and reading a model fills it.
    stat = dict(line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    return limit - current + int(stat["active_file"]) + int(stat["inactive_file"])
