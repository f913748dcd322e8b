"""Turnstile: the asyncio around a line and a router. Who waits sleeps here until there is a place for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from camshaft.errors import CamshaftError, DeadlineExceeded, Draining, ReplicaLost
from camshaft.gateway.line import Line, Ticket
from camshaft.gateway.outcome import Outcome
from camshaft.gateway.route import Job, Lease, Router
from camshaft.types import Clock

_LOOK = 16  # of the line, for one whom some replica has room for
_RETURN_S = 60.0  # for another replica to have room for a stream that lost its own


class Waiting(NamedTuple):
    """Somebody whose turn it is not yet."""

    ticket: Ticket
    job: Job
    turn: asyncio.Future[Lease]
    avoid: Sequence[str] = ()


class Turnstile:
    """One per version, used from the event loop only. `turn` is cheap where nothing can go."""

    def __init__(self, line: Line, router: Router, clock: Clock) -> None:
        self.expecting = False  # a replica is on its way, so that waiting for it makes sense
        self._line = line
        self._router = router
        self._clock = clock
        self._waiting: dict[int, Waiting] = {}
        self._returning: list[Waiting] = []  # they were through already, and go first
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._empty = asyncio.Event()

    @property
    def n_returning(self) -> int:
        return len(self._returning)

    def enter(self, ticket: Ticket, job: Job) -> Waiting:
        """Into the line. Raises what it refuses with; otherwise `through` comes next."""
        if self._closed:
            raise _taken_away()
        self._line.enter(ticket, self._clock.now())
        waiting = Waiting(ticket, job, asyncio.get_running_loop().create_future())
        self._waiting[ticket.key] = waiting
        self.turn()
        return waiting

    async def through(self, waiting: Waiting) -> Lease:
        """A place on a replica, when it is its turn. Raises why there will be none. Cancelled: it was never here."""
        try:
            return await waiting.turn
        except asyncio.CancelledError:
            _give_back(waiting.turn, self._clock.now())
            raise
        finally:
            self._waiting.pop(waiting.ticket.key, None)
            self._tell_empty()

    async def again(self, job: Job, ticket: Ticket, avoid: Sequence[str]) -> Lease:
        """A place for one whose replica was lost, before all who wait. Raises ReplicaLost, DeadlineExceeded."""
        waiting = Waiting(ticket, job, asyncio.get_running_loop().create_future(), avoid)
        self._returning.append(waiting)
        self.turn()
        left_s = ticket.deadline_at - self._clock.now()
        try:
            async with asyncio.timeout(max(0.0, min(_RETURN_S, left_s))):
                return await waiting.turn
        except TimeoutError:
            _give_back(waiting.turn, self._clock.now())
            if left_s <= _RETURN_S:
                raise DeadlineExceeded("the deadline passed while the answer changed its replica; allow more time") from None
            raise ReplicaLost(f"the replica died, and within {_RETURN_S:g} s no other could take the answer over") from None
        except asyncio.CancelledError:
            _give_back(waiting.turn, self._clock.now())
            raise
        finally:
            if waiting in self._returning:
                self._returning.remove(waiting)
            self._tell_empty()

    def turn(self) -> None:
        """Something changed: a place is free, a replica came, somebody entered, time passed."""
        now = self._clock.now()
        for ticket, error in self._line.expire(now):
            self._end(ticket, error)
        for waiting in list(self._returning):
            lease = None if waiting.turn.done() else self._router.place(waiting.job, now, waiting.avoid)
            if lease is not None:
                self._returning.remove(waiting)
                waiting.turn.set_result(lease)
        while len(self._line) and self._pass_one(now):
            pass
        self._set_timer(now)

    async def emptied(self) -> None:
        """Returns when nobody waits."""
        while self._waiting or self._returning:
            self._empty.clear()
            await self._empty.wait()

    def close(self) -> None:
        """Nobody waits any more, and nobody comes in."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.fail_waiting(_taken_away)

    def fail_waiting(self, error: Callable[[], CamshaftError]) -> None:
        """End those who wait, because nobody will ever take them."""
        for waiting in [*self._waiting.values(), *self._returning]:
            if not waiting.turn.done():
                waiting.turn.set_exception(error())

    def _pass_one(self, now: float) -> bool:
        for ticket in self._line.first(_LOOK, now):
            waiting = self._waiting.get(ticket.key)
            if waiting is None or waiting.turn.done():
                continue
            lease = self._router.place(waiting.job, now)
            if lease is not None:
                self._line.take(ticket, now)
                waiting.turn.set_result(lease)
                return True
        return False

    def _end(self, ticket: Ticket, error: CamshaftError) -> None:
        waiting = self._waiting.get(ticket.key)
        if waiting is not None and not waiting.turn.done():
            waiting.turn.set_exception(error)

    def _tell_empty(self) -> None:
        if not self._waiting and not self._returning:
            self._empty.set()

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [at for at in (self._line.next_timer(), self._router.next_timer(now)) if at is not None]
        if due and not self._closed and (len(self._line) or self._returning):
            self._timer = asyncio.get_running_loop().call_later(max(0.01, min(due) - now), self.turn)


def _taken_away() -> CamshaftError:
    return Draining("this model is being taken away; ask again", retry_after_s=1.0)


def _give_back(turn: asyncio.Future[Lease], now: float) -> None:
    """A place that was given to somebody who has just left."""
    if turn.done() and not turn.cancelled() and turn.exception() is None:
        turn.result().close(Outcome.NEUTRAL, now)
