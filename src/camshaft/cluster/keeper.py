"""Runs a command and sees to it that nothing of it outlives whoever asked for it. A program of its own over the standard library.

    python keeper.py GRACE_S COMMAND [ARGUMENT ...]

It stands between us and the command, and holds the reading end of a pipe of which we hold the other. When that closes, because we closed it
or because we are gone, however we went, and when the command itself ends, it ends every process that came of the command: SIGTERM first,
SIGKILL after GRACE_S. On Linux it adopts what the command's children leave behind, so that a daemon does not escape either. Then it ends
as the command did.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

KILL_S = 5.0  # for killed processes to be gone: longer only where the system itself hangs
LOOK_S = 0.05
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LINUX = sys.platform == "linux"
ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Keeper:
    def __init__(self, command: Sequence[str], grace_s: float) -> None:
        self._grace_s = grace_s
        self._status: int | None = None  # of the command, as waitpid has it
        self._bell, bell = os.pipe()
        for end in (self._bell, bell):
            os.set_blocking(end, False)
        # Python's handlers only ring; what a signal means is read from the state it leaves.
        signal.set_wakeup_fd(bell)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._asked = False
        for number in ENDINGS:
            signal.signal(number, lambda number, frame: self._ask())
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._pid = _start(command)

    def run(self) -> int:
        """Until the command has ended and nothing of it is left. Its status, as waitpid has it."""
        while self._status is None and not self._asked:
            ready, _, _ = select.select([0, self._bell], [], [])
            if 0 in ready and not os.read(0, 65_536):
                self._asked = True
            self._hear()
        self._end()
        return 0 if self._status is None else self._status

    def _ask(self) -> None:
        self._asked = True

    def _hear(self) -> bool:
        """Whether there is any child left, once those that ended are buried."""
        with suppress(BlockingIOError):
            os.read(self._bell, 65_536)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return True
                if pid == self._pid:
                    self._status = status
        return False

    def _end(self) -> None:
        told: set[int] = set()
        kill_at = time.monotonic() + self._grace_s
        # Whoever lost its parent became our child, so that without a child there is nobody. Elsewhere than on Linux a group is all we know.
        while self._hear() or (not LINUX and _is_there(self._pid)):
            left = _descendants() if LINUX else [-self._pid]
            now = time.monotonic()
            for pid in left:
                if now >= kill_at:
                    _send(pid, signal.SIGKILL)
                elif pid not in told:
                    told.add(pid)
                    _send(pid, signal.SIGTERM)
                    _send(pid, signal.SIGCONT)  # what is stopped would not hear of it
            if now >= kill_at + KILL_S:
                return
            select.select([self._bell], [], [], LOOK_S)


def _start(command: Sequence[str]) -> int:
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *ENDINGS):
            signal.signal(number, signal.SIG_DFL)
        os.setpgid(0, 0)
        # Even a keeper that was killed takes the command with it.
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(2, 1)
            os.execvp(command[0], list(command))
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(127)


def _descendants() -> list[int]:
    """All processes that came of this one, from /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name in parentheses may hold anything, parentheses too.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z":  # which is for its parent to bury
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    todo = [os.getpid()]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _is_there(group: int) -> bool:
    with suppress(PermissionError):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True


def _send(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if pid > 0:
            os.kill(pid, number)
        else:
            os.killpg(-pid, number)


def _prctl(option: int, value: int) -> None:
    if LINUX:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def main(argv: Sequence[str]) -> int:
    status = Keeper(argv[1:], float(argv[0])).run()
    if os.WIFSIGNALED(status):
        # Without a second core file.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        with suppress(OSError, ValueError):  # SIGKILL has no handler to reset
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
