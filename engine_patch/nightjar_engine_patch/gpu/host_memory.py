"""How much memory of the host this process may still take."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class _Group:
    """Where a version of control groups tells of memory; pages of files by their names in memory.stat."""

    limit: str
    taken: str
    stat: str
    files: tuple[str, str]


_GROUPS = (
    _Group("memory.max", "memory.current", "memory.stat", ("active_file", "inactive_file")),
    _Group(
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        ("total_active_file", "total_inactive_file"),
    ),
)


def free_host_bytes(root: Path = Path("/")) -> int:
    """What the machine has available, or less if the process's control group (version 2 or 1) has a lower limit."""
    meminfo = dict(line.split(":") for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines())
    available = int(meminfo["MemAvailable"].split()[0]) << 10
    folder = root / "sys/fs/cgroup"
    return min([available, *(_left_in(folder, group) for group in _GROUPS if _has_limit(folder / group.limit))])


def _has_limit(file: Path) -> bool:
    return file.exists() and file.read_text(encoding="ascii").strip() != "max"


def _left_in(folder: Path, group: _Group) -> int:
    limit, taken = (int((folder / name).read_text(encoding="ascii")) for name in (group.limit, group.taken))
    # What only caches files is given up when memory is short, and reading a model fills it.
    stat = dict(line.split() for line in (folder / group.stat).read_text(encoding="ascii").splitlines())
    return limit - taken + sum(int(stat[name]) for name in group.files)
