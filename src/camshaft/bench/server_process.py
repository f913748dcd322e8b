"""ServerProcess: a server as a child process of a bench: started, waited for, and ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import camshaft

STOP_S = 60.0
_SAID_CHARS = 4_000


def environment() -> dict[str, str]:
    """Ours, with this very source tree first."""
    source = str(Path(camshaft.__file__).parents[1])
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH", ""))))}


class ServerProcess:
    """Runs from here on, until `stop` or `kill`. What it says goes into a file, so that no full pipe ever holds it up."""

    def __init__(self, command: Sequence[str], said: Path, env: Mapping[str, str] = {}) -> None:
        """`env`: beside `environment`. `said` is added to."""
        self._said = said
        with said.open("ab") as log:
            self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**environment(), **env})

    @property
    def pid(self) -> int:
        return self._child.pid

    def await_up(self, is_up: Callable[[], bool], limit_s: float, pause_s: float = 0.1) -> None:
        """Raises RuntimeError with the last of what it said where it ended before it was up, or takes too long."""
        until = time.monotonic() + limit_s
        while not is_up():
            ended = self._child.poll()
            if ended is not None or time.monotonic() > until:
                why = f"was not up within {limit_s:g} s" if ended is None else f"ended with {ended}"
                said = self._said.read_text(errors="replace")[-_SAID_CHARS:].strip()
                raise RuntimeError(f"the server {why}; it said:\n{said or 'nothing'}")
            time.sleep(pause_s)

    def stop(self, limit_s: float = STOP_S) -> None:
        """As an operator does it: what runs may end."""
        self._child.terminate()
        try:
            self._child.wait(limit_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._child.kill()
        self._child.wait(STOP_S)
