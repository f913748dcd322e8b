"""A bench's server: what is said where it does not come up, and that it is gone afterwards, however it takes the word to go."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from camshaft.bench.server_process import ServerProcess

STUBBORN = "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open(sys.argv[1], 'w'); time.sleep(600)"


def is_there(path: Path) -> Callable[[], bool]:
    return path.exists


def test_one_that_ends_before_it_is_up_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = ServerProcess([sys.executable, "-c", "print('no such model'); raise SystemExit(3)"], tmp_path / "said")
    with pytest.raises(RuntimeError, match=r"ended with 3; it said:\nno such model"):
        process.await_up(lambda: False, 60.0, pause_s=0.01)
    process.stop()


def test_one_that_takes_too_long_is_told_and_ended(tmp_path: Path) -> None:
    process = ServerProcess([sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "said")
    with pytest.raises(RuntimeError, match="was not up within 0 s; it said:\nnothing"):
        process.await_up(lambda: False, 0.0, pause_s=0.01)
    process.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_one_that_does_not_want_to_go_is_killed(tmp_path: Path) -> None:
    up = tmp_path / "up"
    process = ServerProcess([sys.executable, "-c", STUBBORN, str(up)], tmp_path / "said", {"PYTHONUNBUFFERED": "1"})
    process.await_up(is_there(up), 60.0, pause_s=0.01)
    process.stop(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
