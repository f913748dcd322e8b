"""How much memory this process may still take."""

from __future__ import annotations

import os
from pathlib import Path


def free_bytes() -> int:
    """The machine's available memory or what the control group leaves, whichever is less."""
    return min(_machine_bytes(), _cgroup_bytes(Path("/sys/fs/cgroup")))


def _machine_bytes() -> int:
    """Linux counts reclaimable caches as available; elsewhere physical memory is the best that the standard library knows."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_bytes(root: Path) -> int:
    """Version 2 alone; without a limit there is no bound from here."""
    try:
        limit = (root / "memory.max").read_text(encoding="ascii").strip()
        used = (root / "memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return 1 << 62
    return 1 << 62 if limit == "max" else max(0, int(limit) - int(used))
