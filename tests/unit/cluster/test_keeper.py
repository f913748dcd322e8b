"""The keeper: whatever came of a command ends with it, with its owner, and with its owner's death."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from camshaft.bench.processes import is_alive, is_buried
from camshaft.cluster import keeper
from camshaft.cluster.child import Child

# Writes its own id and that of a daemon that has left its parent, its session and all signals behind; then runs `then`.
FAMILY = """
import os, signal, sys, time
folder, then = sys.argv[1:3]
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    if then != "polite":
        signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(folder + "/daemon.part", "w").write(str(os.getpid()))
        os.rename(folder + "/daemon.part", folder + "/daemon")
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(folder + "/daemon"):
    time.sleep(0.001)
open(folder + "/main.part", "w").write(str(os.getpid()))
os.rename(folder + "/main.part", folder + "/main")
if then == "crash":
    os.kill(os.getpid(), signal.SIGKILL)
if then == "leave":
    sys.exit(3)
time.sleep(600)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is Linux's")


def command(folder: Path, then: str, grace_s: float = 0.2) -> list[str]:
    return [sys.executable, "-I", "-S", keeper.__file__, str(grace_s), sys.executable, "-I", "-S", "-c", FAMILY, str(folder), then]


async def family(folder: Path) -> list[int]:
    async with asyncio.timeout(20):
        while not (folder / "main").exists():  # noqa: ASYNC110 - a file is how processes that are no relatives speak
            await asyncio.sleep(0.005)
    return [int((folder / name).read_text()) for name in ("main", "daemon")]


async def gone(*pids: int) -> None:
    async with asyncio.timeout(20):
        while any(map(is_alive, pids)):  # noqa: ASYNC110 - they are no children of ours
            await asyncio.sleep(0.005)


async def test_a_deaf_family_ends_when_its_owner_asks(tmp_path: Path) -> None:
    child = await Child.start(command(tmp_path, "stay"), os.environ)
    pids = await family(tmp_path)
    child.send(signal.SIGTERM)
    await child.close(20)
    assert all(map(is_buried, pids))


async def test_a_polite_one_needs_no_killing_even_when_it_is_stopped(tmp_path: Path) -> None:
    child = await Child.start(command(tmp_path, "polite", grace_s=60), os.environ)
    pids = await family(tmp_path)
    os.kill(pids[0], signal.SIGSTOP)
    child.send(signal.SIGTERM)
    assert await child.exited() == "it was killed by SIGTERM"
    assert all(map(is_buried, pids))
    await child.close(1)


async def test_it_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    """Nothing is left when the gateway is killed with -9: not the command, and not the daemon that it made."""
    owner = "import subprocess, sys, time; subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); time.sleep(600)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", owner, *command(tmp_path, "stay"))
    pids = await family(tmp_path)
    process.kill()
    await process.wait()
    await gone(*pids)


async def test_it_ends_with_its_keeper_too(tmp_path: Path) -> None:
    child = await Child.start(command(tmp_path, "stay"), os.environ)
    main, daemon = await family(tmp_path)
    child.send(signal.SIGKILL)
    await gone(main)
    os.kill(daemon, signal.SIGKILL)  # nobody is left who could know of it
    await child.close(5)


@pytest.mark.parametrize(("then", "how"), [("leave", "it ended with status 3"), ("crash", "it was killed by SIGKILL")])
async def test_it_ends_as_the_command_does_and_takes_the_rest_along(tmp_path: Path, then: str, how: str) -> None:
    child = await Child.start(command(tmp_path, then), os.environ)
    assert await child.exited() == how
    assert all(is_buried(int((tmp_path / name).read_text())) for name in ("main", "daemon"))
    await child.close(1)


async def test_a_command_that_is_not_there_says_so() -> None:
    child = await Child.start([sys.executable, "-I", "-S", keeper.__file__, "1", "/nowhere/server", "--port"], os.environ)
    assert await child.exited() == "it ended with status 127"
    assert "/nowhere/server cannot be started" in str(child.tail)
    await child.close(1)


async def test_what_the_command_says_is_heard() -> None:
    child = await Child.start([sys.executable, "-I", "-S", keeper.__file__, "1", "sh", "-c", "echo out; echo err >&2"], os.environ)
    assert await child.exited() == "it ended with status 0"
    assert str(child.tail) == "out | err"
    await child.close(1)
