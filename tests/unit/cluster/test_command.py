"""A server of another make as a process of ours: it comes up, it is looked after, it ends; and one that somebody else runs."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import sys

import pytest

from camshaft.bench.fake_openai import FakeOpenAI, Play
from camshaft.bench.processes import children, command_line, is_buried
from camshaft.cluster.backend import State
from camshaft.cluster.command import Command, CommandLauncher
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.foreign import Access, ForeignConfig
from camshaft.cluster.outside import OutsideLauncher
from camshaft.errors import ConfigError, Unavailable
from camshaft.types import Failed, Finished
from foreign_rig import asking, events_of

FAKE = (sys.executable, "-m", "camshaft.bench.fake_openai", "--port", "{port}")
BOUNDS = ReplicaConfig(start_s=30, warm_s=20, close_s=1)
SECRET = "sk-very-secret"


def launcher(
    *argv: str, config: ForeignConfig | None = None, bounds: ReplicaConfig = BOUNDS, access: Access | None = None
) -> CommandLauncher:
    path = os.pathsep.join(p for p in sys.path if p)
    return CommandLauncher(Command(argv, (("PYTHONPATH", path),)), access or Access(), config or ForeignConfig(), bounds)


def ignore(state: State) -> None:
    pass


def keepers() -> list[int]:
    """Ours that are alive, by their process ids."""
    return [pid for pid in children(os.getpid()) if "keeper" in command_line(pid)]


def kept() -> int:
    """What the one keeper keeps."""
    (keeper,) = keepers()
    (server,) = children(keeper)
    return server


async def test_it_comes_up_warm_answers_and_leaves_nothing() -> None:
    told: list[State] = []
    backend = await launcher(*FAKE).launch("a", told.append)
    assert told == ["warming"]
    family = [*keepers(), kept()]
    assert not children(kept())
    assert isinstance((await events_of(backend, asking()))[-1], Finished)
    await backend.close()
    await backend.close()
    assert all(map(is_buried, family))


async def test_a_killed_command_is_lost_with_its_last_words() -> None:
    backend = await launcher(*FAKE).launch("a", ignore)
    server = kept()
    task = asyncio.ensure_future(events_of(backend, asking(Play(stall_after=1))))
    async with asyncio.timeout(10):
        while (await backend.health()).running == 0:  # noqa: ASYNC110 - health is asked for, nobody announces it
            await asyncio.sleep(0)
    os.kill(server, signal.SIGKILL)
    why = await asyncio.wait_for(backend.lost(), 20)
    assert why.startswith("it was killed by SIGKILL; it said: listening on")
    events = await asyncio.wait_for(task, 20)
    assert isinstance(events[-1], Failed)
    assert events[-1].error.code == "replica_lost"
    await backend.close()


async def test_one_that_stands_still_is_lost_and_ended() -> None:
    config = ForeignConfig(health_every_s=0.05, health_wait_s=0.1, health_misses=2)
    backend = await launcher(*FAKE, config=config).launch("a", ignore)
    server = kept()
    os.kill(server, signal.SIGSTOP)
    assert "2 health checks in a row failed" in await asyncio.wait_for(backend.lost(), 20)
    await backend.close()
    assert is_buried(server)


@pytest.mark.parametrize(
    ("argv", "start_s", "why"),
    [
        (("sh", "-c", "echo cannot open the model >&2; exit 3", "{port}"), 30.0, "it ended with status 3; it said: cannot open the model"),
        (("sh", "-c", "exec sleep 600", "{port}"), 0.2, "did not answer its health check within 0.2 s"),
        (("/nowhere/server", "{port}"), 30.0, "/nowhere/server cannot be started"),
    ],
)
async def test_one_that_does_not_come_up_says_why_and_leaves_nothing(argv: tuple[str, ...], start_s: float, why: str) -> None:
    bounds = dataclasses.replace(BOUNDS, start_s=start_s)
    with pytest.raises(Unavailable) as caught:
        await launcher(*argv, bounds=bounds).launch("a", ignore)
    assert why in caught.value.message
    assert not keepers()


async def test_a_launch_that_is_cancelled_leaves_nothing() -> None:
    task = asyncio.ensure_future(launcher("sh", "-c", "exec sleep 600", "{port}").launch("a", ignore))
    async with asyncio.timeout(20):
        while not (found := keepers()):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert all(map(is_buried, found))


async def test_one_that_gives_no_token_is_not_ready() -> None:
    with pytest.raises(Unavailable, match="gave no token"):
        await launcher(*FAKE, "--status", "500").launch("a", ignore)


async def test_its_last_words_are_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEIR_KEY", SECRET)
    with pytest.raises(Unavailable) as caught:
        await launcher("sh", "-c", "echo my key is $THEIR_KEY; exit 1", "{port}", access=Access("", "THEIR_KEY")).launch("a", ignore)
    assert "my key is" in caught.value.message
    assert SECRET not in caught.value.message


def test_a_template_is_words_and_no_shell() -> None:
    command = Command(("serve", "--port={port}", "{host}", "{name}; rm -rf /", '{"a": {}}'))
    assert command.words("a", 7) == ["serve", "--port=7", "127.0.0.1", "a; rm -rf /", '{"a": {}}']
    with pytest.raises(ConfigError, match="port"):
        launcher("serve")


async def test_an_outside_address_is_looked_at_and_lost_when_it_does_not_answer() -> None:
    server = FakeOpenAI()
    await server.start()
    config = ForeignConfig(health_every_s=0.01, health_misses=2)
    told: list[State] = []
    backend = await OutsideLauncher(server.url, Access(), config).launch("far", told.append)
    assert told == ["warming"]
    assert isinstance((await events_of(backend, asking()))[-1], Finished)
    assert b'"model":"fake"' in server.asked[-1]
    await server.close()
    assert "health checks in a row failed" in await asyncio.wait_for(backend.lost(), 20)
    await backend.close()
    with pytest.raises(Unavailable, match=r"is not well: .* cannot be reached"):
        await OutsideLauncher(server.url, Access(), config).launch("far", told.append)


async def test_a_server_without_a_health_path_is_asked_for_its_models() -> None:
    server = FakeOpenAI()
    await server.start()
    backend = await OutsideLauncher(server.url, Access(), ForeignConfig(health_path="/nothing")).launch("far", ignore)
    await backend.close()
    await server.close()
