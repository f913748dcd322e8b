"""A child process that downloads something, watched: it has a deadline, and it must keep making progress."""

from __future__ import annotations

import os
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from camshaft.errors import DownloadError

_POLL_S = 0.2
_TAIL_BYTES = 16_384


class Limits(Struct, frozen=True):
    """`stall_s`: longest time without a byte. `deadline_s`: longest time in all."""

    stall_s: float = 240.0
    deadline_s: float = 6 * 3600.0


def run(command: Sequence[str], log: Path, env: Mapping[str, str], *, measure: Callable[[], int], limits: Limits) -> int:
    """Runs a command to its end, its output going to `log`, and returns the exit status.

    `measure` returns the bytes there are so far; it is called a few times a second, so that it may report progress too. Raises
    DownloadError when a limit is passed. The child never outlives this call.
    """
    started = grown = time.monotonic()
    size = measure()
    with log.open("wb") as output, subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env) as child:
        try:
            while True:
                try:
                    return child.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    pass
                now, before, size = time.monotonic(), size, measure()
                grown = now if size != before else grown
                if now - grown > limits.stall_s:
                    raise DownloadError(f"the download has stood still for {limits.stall_s:.0f} seconds; check the network and try again")
                if now - started > limits.deadline_s:
                    raise DownloadError(f"the download took longer than {limits.deadline_s:.0f} seconds; try again on a faster network")
        finally:
            child.kill()


def tail(log: Path) -> list[str]:
    """The last lines of a child's output, without empty ones."""
    raw = log.read_bytes()[-_TAIL_BYTES:]
    return [line.strip() for line in raw.decode(errors="replace").splitlines() if line.strip()]


def tree_bytes(folder: Path) -> int:
    """Bytes of all files below a folder that others may be writing to."""
    total = 0
    for root, _, names in os.walk(folder):  # passes over a folder that is gone by the time it is its turn
        for name in names:
            with suppress(FileNotFoundError):  # renamed or removed since the folder was listed
                found = os.lstat(os.path.join(root, name))
                total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total
