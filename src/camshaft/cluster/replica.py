"""Replica: one place in a pool. It starts a backend there, watches it, and starts another when it is lost."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from camshaft.clock import SystemClock
from camshaft.cluster.backend import Backend, Launcher, State
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.counted import Counted
from camshaft.cluster.crashes import Crashes
from camshaft.errors import CamshaftError, ConfigError, ModelError, Unavailable
from camshaft.types import Clock

log = logging.getLogger(__name__)

# What it may become. Any state may last: a start that fails is followed by another.
NEXT: dict[State, tuple[State, ...]] = {
    "gone": ("starting",),
    "starting": ("starting", "warming", "ready", "gone"),
    "warming": ("starting", "ready", "gone"),
    "ready": ("starting", "draining", "gone"),
    "draining": ("gone",),
}


class Change(NamedTuple):
    """A replica's state changed, or it failed to (`old` equals `new`: another try)."""

    replica: str
    old: State
    new: State
    reason: str
    at: float


class Seat(NamedTuple):
    """What a replica is given: how to start a backend, for how long, and who hears of it."""

    launcher: Launcher
    config: ReplicaConfig
    told: Callable[[Change], None]
    clock: Clock = SystemClock()
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    patient: bool = False  # somebody else runs what is launched, so that it is looked for as long as it takes


class Replica:
    """Event loop thread only. Owns its backend; `close` leaves nothing of it."""

    def __init__(self, name: str, seat: Seat) -> None:
        self.name = name
        self.state: State = "gone"
        self.reason = "not started"
        self.since = seat.clock.now()
        self.n_restarts = 0  # after crashes
        self.last_error = ""  # what its latest life ended with; "" once it is ready
        self._seat = seat
        self._crashes = Crashes(seat.config, seat.jitter, patient=seat.patient)
        self._backend: Counted | None = None
        self._living: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # set and replaced with each change

    def __repr__(self) -> str:
        return f"Replica({self.name}, {self.state})"

    @property
    def backend(self) -> Backend | None:
        """There while it is ready or draining."""
        return self._backend

    @property
    def n_streams(self) -> int:
        return 0 if self._backend is None else self._backend.n_streams

    def start(self) -> None:
        """Begin a life. Only of one that is gone."""
        self._become("starting", "started")
        self._living = asyncio.ensure_future(self._live())

    async def settled(self) -> State:
        """Returns when it is ready or gone: in bounded time, because every try has its bounds and tries are counted."""
        while self.state not in ("ready", "gone"):
            await self._changed.wait()
        return self.state

    async def drain(self, reason: str) -> None:
        """Take nothing new, let streams end for `drain_s`, then be gone. One that is not ready is gone at once."""
        living = self._living
        if self.state == "ready" and self._backend is not None:
            self._backend.hold()
            self._become("draining", reason)
            await _first(self._backend.idle(), self._gone(), self._seat.sleep(self._seat.config.drain_s))
        elif self.state == "draining":
            await self._gone()
        if self._living is living:  # nobody restarted it meanwhile
            await self._stop(reason)

    async def restart(self, reason: str) -> None:
        """End what runs and begin anew, with the crashes forgotten."""
        await self._stop(reason)
        self._crashes.forget()
        self.start()

    async def close(self) -> None:
        """Idempotent."""
        await self._stop("closed")

    # ----------------------------------------------------------------------------------------------------------- inside

    async def _stop(self, reason: str) -> None:
        living = self._living
        if living is not None:
            if not living.cancelling():  # a second time would cut its putting away short
                living.cancel()
            await asyncio.wait((living,))
        if self._living is living:
            self._living = None
            if self.state != "gone":
                self._become("gone", reason)

    async def _live(self) -> None:
        wait_s: float | None = 0.0
        while wait_s is not None:
            if wait_s:
                await self._seat.sleep(wait_s)
            wait_s = await self._life()

    async def _life(self) -> float | None:
        """One backend, from its start to its end. Seconds until the next one; None where there is to be none."""
        backend: Backend | None = None
        ready_s, may_pass = 0.0, True
        try:
            try:
                backend = await self._launched()
                self._backend, began = Counted(self.name, backend), self._seat.clock.now()
                self.last_error = ""
                self._become("ready", "warm")
                why = await backend.lost()
                ready_s = self._seat.clock.now() - began
            except CamshaftError as error:
                # The next try would read the same file and the same settings.
                why, may_pass = error.message, not isinstance(error, (ConfigError, ModelError))
            except Exception as error:
                log.exception("replica=%s its launcher failed in a way that it must not", self.name)
                why = f"{type(error).__name__}: {error}"
            self._backend = None
            return self._after(why, ready_s, may_pass)
        finally:
            self._backend = None
            if backend is not None:
                await backend.close()

    def _after(self, why: str, ready_s: float, may_pass: bool) -> float | None:
        news, self.last_error = why != self.last_error, why
        if self.state == "draining" or not may_pass:
            self._become("gone", why)
            return None
        wait_s = self._crashes.crashed(ready_s, self._seat.clock.now())
        if wait_s is None:
            self._become("gone", f"given up after {self._crashes.in_a_row} crashes in a row, the last: {why}")
            return None
        self.n_restarts += 1
        # Who is looked for all day long is not told of each time.
        self._become("starting", f"{why}; starts again in {wait_s:.1f} s", told=news or not self._seat.patient)
        return wait_s

    async def _launched(self) -> Backend:
        """A backend that is ready. The bounds are the launcher's to keep; here they only catch one that does not."""
        config, seat = self._seat.config, self._seat
        work = asyncio.ensure_future(seat.launcher.launch(self.name, self._reached))
        try:
            for limit_s, state, done in ((config.start_s, "starting", "loaded"), (config.warm_s, "warming", "warm")):
                timer = asyncio.ensure_future(seat.sleep(limit_s + config.close_s))
                try:
                    while self.state == state and not work.done() and not timer.done():
                        moved = asyncio.ensure_future(self._changed.wait())
                        await asyncio.wait((work, timer, moved), return_when=asyncio.FIRST_COMPLETED)
                        moved.cancel()
                finally:
                    timer.cancel()
                if work.done():
                    return work.result()
                if self.state == state:
                    raise Unavailable(f"{self.name} was not {done} within {limit_s:g} s")
            raise Unavailable(f"{self.name} took a wrong turn to {self.state}")
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    def _reached(self, state: State) -> None:
        """The launcher says how far it is."""
        if state == "warming" and self.state == "starting":
            self._become("warming", "loaded", told=not (self._seat.patient and self.last_error))

    def _become(self, state: State, reason: str, *, told: bool = True) -> None:
        assert state in NEXT[self.state], f"{self.name} cannot go from {self.state} to {state}"
        change = Change(self.name, self.state, state, reason, self._seat.clock.now())
        self.state, self.reason, self.since = state, reason, change.at
        self._changed.set()
        self._changed = asyncio.Event()
        if told:
            self._seat.told(change)

    async def _gone(self) -> None:
        while self.state != "gone":
            await self._changed.wait()


async def _first(*waits: Awaitable[None]) -> None:
    """Returns when the first of them does; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
