"""CommandLauncher: starts a server of another make from a template, waits until it really answers, and ends all of it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from camshaft.clock import SystemClock
from camshaft.cluster import keeper
from camshaft.cluster.backend import State
from camshaft.cluster.child import Child
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.estimate import TokenEstimate
from camshaft.cluster.foreign import Access, ForeignConfig
from camshaft.cluster.http1 import Address
from camshaft.cluster.openai import OpenAIBackend, Remote
from camshaft.cluster.outside import Looks, warm
from camshaft.errors import ConfigError, Unavailable

HOST = "127.0.0.1"
LOOK_S = 5.0  # longest wait for one look while it starts
FIRST_PAUSE_S, LAST_PAUSE_S = 0.05, 1.0  # between looks
MARGIN_S = 2.0  # for the keeper to end after everything else did


@dataclass(frozen=True)
class Command:
    """`argv` with {port}, {host} and {name} in its words; any other braces are the command's own. No shell reads it."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()  # beside our own environment

    def words(self, name: str, port: int) -> list[str]:
        return [word.replace("{port}", str(port)).replace("{host}", HOST).replace("{name}", name) for word in self.argv]


class CommandLauncher:
    """Implements Launcher."""

    def __init__(
        self,
        command: Command,
        access: Access,
        config: ForeignConfig,
        bounds: ReplicaConfig,
        estimate: TokenEstimate | None = None,
    ) -> None:
        """Raises ConfigError. `estimate` is shared by the replicas of a version."""
        if not command.argv or not any("{port}" in word for word in command.argv):
            raise ConfigError("a command must hold {port}, which becomes the port that it has to listen on")
        access.key()
        self._command = command
        self._access = access
        self._config = config
        self._bounds = bounds
        self._estimate = estimate or TokenEstimate()

    async def launch(self, name: str, told: Callable[[State], None]) -> OpenAIBackend:
        bounds = self._bounds
        port = free_port()
        remote = Remote(Address(HOST, port), self._access, self._config, self._estimate)
        child = await self._start(name, port)
        launched = False
        try:
            await self._unless_it_ends(child, self._answers(remote), bounds.start_s, "answer its health check")
            told("warming")
            await self._unless_it_ends(child, warm(remote, bounds.warm_s), bounds.warm_s, "give a token")
            backend = OpenAIBackend(remote, Kept(child, remote, bounds.close_s), SystemClock())
            launched = True
            return backend
        finally:
            if not launched:
                remote.http.close()
                await end(child, bounds.close_s)

    async def _start(self, name: str, port: int) -> Child:
        words = self._command.words(name, port)
        # Isolated and without site packages: it needs none, and starts in a few milliseconds.
        kept = [sys.executable, "-I", "-S", str(Path(keeper.__file__)), str(self._bounds.close_s), *words]
        env: Mapping[str, str] = {**os.environ, **dict(self._command.env)}
        try:
            return await Child.start(kept, env)
        except OSError as error:
            raise Unavailable(f"the command cannot be started: {error.strerror}") from None

    async def _answers(self, remote: Remote) -> None:
        pause_s = FIRST_PAUSE_S
        while await remote.is_well(LOOK_S):
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def _unless_it_ends(self, child: Child, work: Awaitable[None], limit_s: float, what: str) -> None:
        """Raises Unavailable when the command ends first, or takes too long; or whatever `work` raises."""
        working, ending = asyncio.ensure_future(work), asyncio.ensure_future(child.exited())
        try:
            await asyncio.wait((working, ending), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                raise Unavailable(f"the command did not come up: {ending.result()}{self._last_words(child)}")
            if not working.done():
                raise Unavailable(f"the command did not {what} within {limit_s:g} s{self._last_words(child)}")
            working.result()
        finally:
            for task in (working, ending):
                task.cancel()
            await asyncio.gather(working, ending, return_exceptions=True)

    def _last_words(self, child: Child) -> str:
        return last_words(child, self._access.key())


class Kept:
    """Implements openai.Life for a command that is ours: lost when it ends, and when it no longer answers."""

    def __init__(self, child: Child, remote: Remote, close_s: float) -> None:
        self._child = child
        self._key = remote.key
        self._close_s = close_s
        self._looks = Looks(remote)
        self._closing = False

    async def lost(self) -> str:
        ended, silent = asyncio.ensure_future(self._child.exited()), asyncio.ensure_future(self._looks.lost())
        try:
            await asyncio.wait((ended, silent), return_when=asyncio.FIRST_COMPLETED)
            if self._closing:
                await asyncio.get_running_loop().create_future()  # it did not die
            return (ended.result() if ended.done() else silent.result()) + last_words(self._child, self._key)
        finally:
            ended.cancel()
            silent.cancel()

    async def close(self) -> None:
        self._closing = True
        await self._looks.close()
        await end(self._child, self._close_s)


async def end(child: Child, grace_s: float) -> None:
    """The whole tree of it: its keeper sends SIGTERM, and SIGKILL after `grace_s`."""
    child.send(signal.SIGTERM)
    await child.close(grace_s + keeper.KILL_S + MARGIN_S)


def last_words(child: Child, key: str) -> str:
    said = str(child.tail)
    return f"; it said: {said.replace(key, '[key]') if key else said}" if said else ""


def free_port() -> int:
    """A port of the loopback address that nobody listens on. Somebody may take it first; then the command fails and is started anew."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
