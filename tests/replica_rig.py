"""Backends without a process, a launcher that does as it is told, and a clock that is turned by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from camshaft.clock import ManualClock
from camshaft.cluster.backend import State
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.replica import Change, Seat
from camshaft.errors import CamshaftError
from camshaft.types import Delta, Event, Failed, Finished, Health, Load, ReplicaInfo, Request, Usage


class StubBackend:
    """Streams a token each time that `go` is set, and ends when `n` came."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.info = ReplicaInfo(numerics_id="stub")
        self.load = Load()
        self.go = asyncio.Event()
        self.died: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.n_closed = 0
        self.n_open = 0

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        self.n_open += 1
        try:
            yield Delta("a", (1,))
            await self.go.wait()
            yield Finished("stop", Usage(1, 0, 1)) if not self.died.done() else Failed(CamshaftError("lost").info())
        finally:
            self.n_open -= 1

    async def health(self) -> Health:
        return Health(not self.died.done(), self.n_open, 0)

    async def lost(self) -> str:
        return await asyncio.shield(self.died)

    async def metrics(self) -> bytes:
        return b""

    async def close(self) -> None:
        self.n_closed += 1
        self.go.set()


class Time:
    """Nobody waits for real. Whoever sleeps is woken when the clock is turned that far."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0)
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self.clock.now() + seconds, future))
        await future

    async def turn(self, seconds: float) -> None:
        """Let so much time pass, and all that follows from it happen."""
        self.clock.advance(seconds)
        for at, future in self._sleepers:
            if at <= self.clock.now() and not future.done():
                future.set_result(None)
        self._sleepers = [(at, future) for at, future in self._sleepers if not future.done()]
        await settle()


class StubLauncher:
    """`plan` says what each launch does, in turn: "ok", an error to raise, or "hang". The last goes on for ever."""

    def __init__(self, *plan: str | Exception) -> None:
        self.plan = list(plan) or ["ok"]
        self.made: list[StubBackend] = []
        self.n_launches = 0
        self.n_given_up = 0
        self.loaded = asyncio.Event()  # what "hang" waits for before it says that it is loaded, and then hangs on

    async def launch(self, name: str, told: Callable[[State], None]) -> StubBackend:
        self.n_launches += 1
        what = self.plan.pop(0) if len(self.plan) > 1 else self.plan[0]
        if isinstance(what, Exception):
            raise what
        if what == "hang":
            try:
                await self.loaded.wait()
                told("warming")
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                self.n_given_up += 1
                raise
        told("warming")
        self.made.append(StubBackend(name))
        return self.made[-1]


class Bench:
    """A seat, and all that was told about those who sit on it."""

    def __init__(self, *plan: str | Exception, **settings: float) -> None:
        self.time = Time()
        self.launcher = StubLauncher(*plan)
        self.changes: list[Change] = []
        self.config = ReplicaConfig(**settings)  # type: ignore[arg-type]
        self.seat = Seat(self.launcher, self.config, self.changes.append, self.time.clock, self.time.sleep, lambda: 1.0)

    def states(self, replica: str = "") -> list[State]:
        return [c.new for c in self.changes if not replica or c.replica == replica]


async def settle() -> None:
    """All that can happen without time passing happens."""
    for _ in range(50):
        await asyncio.sleep(0)
