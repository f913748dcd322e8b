"""What the system tells of processes that may end at any moment, even between two looks at them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether a process runs. One that ended and was not buried yet does not."""
    return _parent(pid) is not None


def is_buried(pid: int) -> bool:
    """Whether nothing is left of a process: it has ended, and its parent has taken note."""
    return not Path(f"/proc/{pid}").exists()


def children(pid: int) -> list[int]:
    """Direct children that are alive, the oldest number first."""
    return sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(int(entry.name)) == pid)


def command_line(pid: int) -> str:
    """Its words, a space between them; nothing of one that has ended."""
    return " ".join(_read(Path(f"/proc/{pid}/cmdline")).split("\0"))


def await_end(pids: Sequence[int], limit_s: float) -> list[int]:
    """Those that are still alive after `limit_s` at most."""
    until = time.monotonic() + limit_s
    while (left := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def on_core_s(pids: Iterable[int]) -> float:
    """Seconds that the living threads of these processes have run: exact, where clock ticks miss what is shorter than one."""
    return sum(_seconds(text) for pid in pids for _, text in _of_threads(pid, "schedstat"))


def on_core_s_by_thread(pid: int) -> dict[str, float]:
    """The same of one process, by its threads' names. The first thread, which has the program's name, is called "main"."""
    found: dict[str, float] = {}
    names = dict(_of_threads(pid, "comm"))
    for thread, text in _of_threads(pid, "schedstat"):
        name = "main" if thread == pid else names.get(thread, "").strip()
        found[name] = found.get(name, 0.0) + _seconds(text)
    return found


def _parent(pid: int) -> int | None:
    """None for a process that has ended, buried or not."""
    # The name in parentheses may hold anything, parentheses too.
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return int(fields[1]) if fields and fields[0] not in ("Z", "X") else None


def _seconds(schedstat: str) -> float:
    return int(schedstat.split()[0]) / 1e9


def _of_threads(pid: int, file: str) -> Iterator[tuple[int, str]]:
    """The id and the text of one file of each thread. Threads that end meanwhile, and all of a process that has, are left out."""
    with suppress(OSError):
        for thread in list(Path(f"/proc/{pid}/task").iterdir()):
            if text := _read(thread / file):
                yield int(thread.name), text


def _read(path: Path) -> str:
    """Nothing where the process is gone: before the file is opened, or (ESRCH) between that and the reading."""
    try:
        return path.read_text()
    except OSError:
        return ""
