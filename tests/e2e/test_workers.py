"""Worker processes and those who started them: what is left when either dies, hangs, talks nonsense or is told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from camshaft.bench.processes import children, command_line, is_alive
from camshaft.cluster import wire
from camshaft.cluster.meeting import Meeting, join
from camshaft.cluster.remote import ProcessBackend
from camshaft.cluster.settings import WorkerSettings, read_settings
from camshaft.errors import CamshaftError, ConfigError, ModelError, Unavailable
from camshaft.types import Delta, Event, Failed, Finished, Request, SamplingParams, TokenPrompt
from worker_rig import COMMAND, PATIENT, collect, gone, launcher, worker

SLOW = "step_s=0.02"
LONG = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)


def request(sampling: SamplingParams = LONG) -> Request:
    return Request(id="r", prompt=TokenPrompt((1, 2, 3)), sampling=sampling)


async def begun(backend: ProcessBackend) -> asyncio.Task[list[Event]]:
    """A long answer of which something has come."""
    running = asyncio.ensure_future(collect(backend, request()))
    async with asyncio.timeout(30):
        while (await backend.health()).running == 0:  # noqa: ASYNC110 - nobody announces it
            await asyncio.sleep(0.01)
    return running


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for sockets, which must be empty in the end."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # a socket's path must be short
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    left = list(folder.rglob("*"))
    assert left == [], left
    folder.rmdir()


# ------------------------------------------------------------------------------------------------- a worker that is lost


async def test_a_worker_that_is_killed_ends_its_streams_at_once_and_says_how_it_died() -> None:
    async with worker(SLOW) as backend:
        running = await begun(backend)
        os.kill(backend.pid, signal.SIGKILL)
        last = (await running)[-1]
        assert isinstance(last, Failed)
        assert last.error.code == "replica_lost"
        assert "SIGKILL" in await backend.lost()
        late = (await collect(backend, request()))[-1]
        assert isinstance(late, Failed)
        assert late.error.status == 503
        assert not (await backend.health()).ready
        assert await backend.metrics() == b""


async def test_a_worker_that_is_stopped_counts_as_lost_and_is_killed() -> None:
    async with worker(SLOW, stall_s=1.0) as backend:
        running = await begun(backend)
        os.kill(backend.pid, signal.SIGSTOP)
        last = (await running)[-1]
        assert isinstance(last, Failed)
        assert last.error.code == "replica_lost"
        assert "silent" in await backend.lost()
        await gone(backend.pid)


async def test_a_step_that_never_ends_counts_as_lost() -> None:
    async with worker("step_s=0", step_s=0.1) as backend:
        heard = backend._heard
        heard(wire.Pong(0, backend.load, 0.2))
        assert "one step" in await backend.lost()


async def test_a_worker_that_talks_nonsense_is_ended() -> None:
    async with worker(SLOW) as backend:
        running = await begun(backend)
        backend._link.data_received(b"HTTP/1.1 200 OK\r\n\r\n")
        last = (await running)[-1]
        assert isinstance(last, Failed)
        assert "broke the protocol" in last.error.message
        assert "broke the protocol" in await backend.lost()
        await gone(backend.pid)


async def test_a_gateway_that_talks_nonsense_ends_the_worker() -> None:
    async with worker() as backend:
        backend._link.send_frame(bytearray(b"\x00\x00\x00\x01x"))
        why = await backend.lost()
        assert "it ended" in why
        assert "it broke the protocol" in why, "its last words say what was wrong"
        await gone(backend.pid)


async def test_two_streams_of_one_number_end_the_worker() -> None:
    async with worker() as backend:
        for _ in range(2):
            backend._link.send_frame(wire.ask(7, request(SamplingParams(max_tokens=1))))
        await backend.lost()


async def test_last_words_are_told_with_the_loss() -> None:
    async with worker(f"{SLOW} say=careful") as backend:
        os.kill(backend.pid, signal.SIGKILL)
        assert (await backend.lost()).endswith("it said: careful")


# -------------------------------------------------------------------------------------------------- a parent that is lost

PARENT = """
import asyncio, sys, uvloop
from worker_rig import launcher
async def main():
    where = sys.argv[1]
    starting = launcher(sys.argv[2], command=COMMAND)
    if where == "loading":
        task = asyncio.ensure_future(starting.launch("r0", lambda state: None))
        await asyncio.sleep(3600)
    backend = await starting.launch("r0", lambda state: None)
    print("ready", flush=True)
    await asyncio.sleep(3600)
uvloop.run(main())
"""


@contextmanager
def parent(where: str, model: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that starts a worker, and the worker's process id, as the worker writes it down."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder) / "pid"
        # The worker says who it is as soon as it runs.
        words = list(COMMAND)
        words[-1] = f"import os; open({str(note)!r}, 'w').write(str(os.getpid()))\n{words[-1]}"
        paths = COMMAND[-1].splitlines()[0]
        command = [sys.executable, "-P", "-c", f"{paths}\nCOMMAND = {tuple(words)!r}\n{PARENT}", where, model]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                if where == "ready":
                    assert child.stdout.readline() == "ready\n"
                while not note.exists() or not note.read_text():
                    assert child.poll() is None
                yield child, int(note.read_text())
            finally:
                child.kill()


@pytest.mark.parametrize("where", ["ready", "loading"])
async def test_a_worker_ends_with_its_parent_however_it_died(where: str) -> None:
    with parent(where, "load_s=60" if where == "loading" else "") as (child, pid):
        assert is_alive(pid)
        child.kill()
        child.wait()
        await gone(pid)


async def test_a_worker_that_holds_pythons_lock_ends_with_its_parent_too() -> None:
    """What is compiled may hold it for as long as it loads; no thread of ours can do anything then."""
    if sys.platform != "linux":
        pytest.skip("only Linux has a signal for it")
    with parent("ready", "") as (child, pid):
        os.kill(pid, signal.SIGSTOP)
        child.kill()
        child.wait()
        await gone(pid)


# ----------------------------------------------------------------------------------------------------------- being told


async def test_a_worker_that_is_told_to_stop_finishes_what_runs() -> None:
    async with worker(SLOW) as backend:
        running = asyncio.ensure_future(collect(backend, request(SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))))
        async with asyncio.timeout(30):
            while (await backend.health()).running == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        os.kill(backend.pid, signal.SIGTERM)
        async with asyncio.timeout(30):
            while (await backend.health()).ready:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        late = (await collect(backend, request()))[-1]
        assert isinstance(late, Failed)
        assert late.error.code == "draining"
        events = await running
        assert isinstance(events[-1], Finished)
        assert sum(len(e.ids) for e in events if isinstance(e, Delta)) == 60
        assert "status 0" in await backend.lost()


async def test_streams_that_outlast_the_drain_are_told_so() -> None:
    async with worker(SLOW, drain_s=0.1) as backend:
        running = await begun(backend)
        os.kill(backend.pid, signal.SIGTERM)
        last = (await running)[-1]
        assert isinstance(last, Failed)
        assert last.error.code == "draining"


async def test_closing_ends_what_runs_and_leaves_no_process() -> None:
    async with worker(SLOW) as backend:
        running = await begun(backend)
        await asyncio.gather(backend.close(), backend.close())
        assert isinstance((await running)[-1], Failed)
        assert not is_alive(backend.pid)


async def test_ctrl_c_in_our_terminal_is_not_for_workers() -> None:
    async with worker() as backend:
        assert os.getpgid(backend.pid) != os.getpgid(0)
        assert os.getsid(backend.pid) != os.getsid(0)


# ------------------------------------------------------------------------------------------------------------- starting


async def failure(model: str, **config: float) -> CamshaftError:
    states: list[str] = []
    with pytest.raises(CamshaftError) as caught:
        await launcher(model, replace(PATIENT, **config)).launch("r0", states.append)  # type: ignore[arg-type]
    return caught.value


async def test_what_is_wrong_with_a_model_is_said_as_the_worker_says_it() -> None:
    error = await failure("fail=no-such-file")
    assert isinstance(error, ModelError)
    assert error.message == "no-such-file"


async def test_a_worker_that_dies_while_it_loads_says_its_last_words() -> None:
    error = await failure("say=out-of-memory exit=3")
    assert isinstance(error, Unavailable)
    assert "status 3" in error.message
    assert "out-of-memory" in error.message


async def test_a_worker_that_is_late_is_ended() -> None:
    error = await failure("load_s=60 say=fetching", start_s=3.0)
    assert isinstance(error, Unavailable)
    assert "not loaded within 3 s" in error.message


async def test_a_launch_that_is_given_up_leaves_nothing() -> None:
    launching = asyncio.ensure_future(launcher("load_s=60").launch("r0", lambda state: None))
    async with asyncio.timeout(60):
        while not (started := children(os.getpid())):  # noqa: ASYNC110 - a launch tells of nothing before the worker speaks
            await asyncio.sleep(0.01)
    launching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await launching
    for pid in started:
        await gone(pid)


async def test_a_command_that_cannot_be_run_says_so() -> None:
    with pytest.raises(Unavailable, match="could not be started"):
        await launcher(command=("/no/such/program",)).launch("r0", lambda state: None)


async def test_a_worker_of_another_version_is_not_believed() -> None:
    words = list(COMMAND)
    words[-1] = words[-1].replace("settings = ", "from camshaft.cluster import wire\nwire.VERSION = 99\nsettings = ")
    with pytest.raises(Unavailable, match="version 99"):
        await launcher(command=tuple(words)).launch("r0", lambda state: None)


# ----------------------------------------------------------------------------------------------------------- the socket


def test_the_socket_is_private_and_gone_once_somebody_came() -> None:
    meeting = Meeting()
    try:
        assert stat.S_IMODE(meeting.path.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(meeting.path.stat().st_mode) == 0o600
        with join(meeting.path):
            assert not meeting.path.parent.exists()
    finally:
        meeting.close()


def test_a_child_whose_parent_is_gone_takes_the_socket_away() -> None:
    meeting = Meeting()
    meeting.listener.close()
    with pytest.raises(OSError):
        join(meeting.path)
    assert not meeting.path.parent.exists()


async def test_settings_are_not_on_the_command_line() -> None:
    async with worker("say=secret") as backend:
        line = command_line(backend.pid)
        assert line
        assert "secret" not in line


def test_a_worker_started_by_hand_says_what_to_do_instead() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(ConfigError, match="camshaft serve"):
            read_settings(theirs.fileno())
    assert WorkerSettings().socket == ""
