"""Looking at processes that come and go meanwhile: what is gone counts as gone, and is never an error."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from camshaft.bench.processes import await_end, children, command_line, is_alive, is_buried, on_core_s, on_core_s_by_thread

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
SLEEP = "import time; time.sleep(600)"


@contextmanager
def child(code: str = SLEEP) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", code]) as process:
        try:
            yield process
        finally:
            process.kill()


def test_one_that_ended_is_gone_before_and_after_it_is_buried() -> None:
    with child() as process:
        assert is_alive(process.pid)
        assert process.pid in children(os.getpid())
        assert command_line(process.pid).startswith(f"{sys.executable} -I -S -c import time;")
        assert await_end([process.pid], 0.0) == [process.pid]
        process.kill()
        for _ in range(2):  # a zombie first, because nobody has waited for it
            assert await_end([process.pid], 60.0) == []
            assert not is_alive(process.pid)
            assert process.pid not in children(os.getpid())
            assert is_buried(process.pid) == (process.returncode is not None)
            process.wait()
        assert command_line(process.pid) == ""
        assert on_core_s([process.pid]) == 0.0
        assert on_core_s_by_thread(process.pid) == {}


def test_it_is_looked_at_while_it_ends() -> None:
    """A look opens a file in /proc and then reads it; a process may end between the two."""
    for _ in range(20):
        with child("pass") as process:
            watcher = threading.Thread(target=process.wait)
            watcher.start()
            while is_alive(process.pid):
                command_line(process.pid)
                on_core_s([process.pid])
                on_core_s_by_thread(process.pid)
            watcher.join()


def test_what_its_threads_have_run_is_told_by_name() -> None:
    before = on_core_s([os.getpid()])
    while on_core_s([os.getpid()]) <= before:  # the system counts a running thread at its next tick
        sum(range(200_000))
    by_thread = on_core_s_by_thread(os.getpid())
    assert before < sum(by_thread.values())
    assert on_core_s([os.getpid()]) >= by_thread["main"] > 0
