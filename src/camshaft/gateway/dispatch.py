"""Dispatch: a version's door. A request waits in line, is given a replica, and is seen through to its end, on another one if need be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple, cast

import msgspec

from camshaft.cluster.backend import Backend
from camshaft.errors import CamshaftError, CircuitOpen, Overloaded, ReplicaLost, UpstreamRefused
from camshaft.gateway.admission import Admission, Books, Entry, Gates
from camshaft.gateway.breaker import Trial
from camshaft.gateway.carry import Carry
from camshaft.gateway.limit import Limiter
from camshaft.gateway.line import Line, Ticket
from camshaft.gateway.outcome import Outcome, Verdict, of_error
from camshaft.gateway.retry import RetryBudget
from camshaft.gateway.route import Lease, Router
from camshaft.gateway.size import Sizer
from camshaft.gateway.turnstile import Turnstile
from camshaft.types import Clock, ErrorInfo, Event, Failed, Finished, Health, Request, Route

_MOVES = 16  # of one answer that go on elsewhere, however many replicas die under it


class Policies(NamedTuple):
    """What decides among one version's requests. Shared with whoever joins and leaves its replicas."""

    limiter: Limiter
    line: Line
    router: Router
    budget: RetryBudget


class Move(NamedTuple):
    """A stream that changed its replica, or could not."""

    request: str
    replica: str
    error: ErrorInfo
    n_tokens: int
    moved: bool
    why: str = ""  # where it could not


class _Tries(NamedTuple):
    """Of one request so far. `died`: the last replica that was asked is dead, rather than failing whoever asks it."""

    n: int
    died: bool


class Named(NamedTuple):
    """Whose door it is."""

    version: str
    longest_s: float  # from a request's arrival to its end
    rank: Callable[[str], int] = lambda tenant: 0  # a tenant's class
    told: Callable[[Move], None] = lambda move: None
    refused: Callable[[str, ErrorInfo], None] = lambda replica, error: None  # our key, by a server of another make


class Dispatch:
    """An Upstream over a version's backends."""

    def __init__(self, named: Named, policies: Policies, backends: Callable[[str], Backend | None], sizer: Sizer, clock: Clock) -> None:
        self.turnstile = Turnstile(policies.line, policies.router, clock)
        self._named = named
        self._line, self._router, self._budget = policies.line, policies.router, policies.budget
        self._admission = Admission(Gates(policies.limiter, policies.line, self.turnstile, sizer, clock))
        self._backends = backends
        self._clock = clock

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """Events in order, exactly one terminal; every failure is a Failed event. Closing the iterator frees everything."""
        now = self._clock.now()
        rank = max(request.priority, self._named.rank(request.tenant))
        limit_s = request.limit_s(self._named.longest_s)
        # Said once for all replicas that it may meet: each would begin anew with its own longest time.
        request = msgspec.structs.replace(request, arrived_at=request.arrived_at or now, priority=rank, deadline_s=limit_s)
        books: Books | None = None
        trial: Trial | None = None
        outcome = Outcome.NEUTRAL
        try:
            self._raise_if_refused(now, limit_s)
            entry = self._admission.admit(request)
            books = entry.books
            self._budget.request(now)
            trial = self._router.version.ask(now)
            lease = await self.turnstile.through(entry.waiting)
            async with aclosing(self._legs(request, entry, lease)) as legs:
                async for event in legs:
                    if isinstance(event, Finished):
                        outcome = Outcome.SUCCESS
                    elif isinstance(event, Failed):
                        outcome = of_error(event.error).outcome
                    yield event
        except CamshaftError as error:
            outcome = of_error(error.info()).outcome
            yield Failed(error.info())
        finally:
            if books is not None:
                books.close()
            if trial is not None:
                trial.close(outcome, self._clock.now())
            self.turnstile.turn()

    async def health(self) -> Health:
        refusal = self._router.refusal(self._clock.now())
        return Health(refusal is None, self._line.n_running, len(self._line), "" if refusal is None else refusal.message)

    async def close(self) -> None:
        """End those who wait; the backends have another owner."""
        self.turnstile.close()

    async def _legs(self, request: Request, entry: Entry, lease: Lease) -> AsyncGenerator[Event, None]:
        """From replica to replica until the answer is over."""
        carry, books = Carry(request), entry.books
        tried: list[str] = []
        numerics = ""  # of the replica that gave the first token: all that follow must compute alike
        while True:
            name = lease.replica
            tried.append(name)
            backend = self._backends(name)
            if backend is not None and not carry.begun:
                numerics = backend.info.numerics_id
            error = ErrorInfo(ReplicaLost.code, f"the replica {name} is gone", ReplicaLost.status)
            route, queue_s = Route(self._named.version, name, n_tries=len(tried)), self._clock.now() - request.arrived_at
            with lease:
                if backend is not None:
                    stream = cast(AsyncGenerator[Event, None], backend.stream(carry.ask()))
                    async with aclosing(stream):
                        async for event in stream:
                            if isinstance(event, Failed):
                                error = event.error
                                break
                            if books.see(event, lease):
                                self.turnstile.turn()
                            shown = carry.see(event, route, queue_s)
                            if isinstance(shown, Finished):
                                lease.close(Outcome.SUCCESS, self._clock.now())
                                shown = shown if len(tried) == 1 else msgspec.structs.replace(shown, route=route)
                            if shown is not None:
                                yield shown
                            if isinstance(event, Finished):
                                return
                verdict = of_error(error)
                lease.close(verdict, self._clock.now())
            if error.code == UpstreamRefused.code:
                self._named.refused(name, error)
            self.turnstile.turn()
            # A replica of ours that says this is dead, and so is one that is not there. Another server may live and fail them all.
            died = error.code == ReplicaLost.code and (backend is None or bool(backend.info.numerics_id))
            why = self._why_not(carry, verdict, numerics, books.ticket, _Tries(len(tried), died))
            if verdict.elsewhere and (carry.begun or why):
                self._named.told(Move(request.id, name, error, carry.n_ids, not why, why))
            if why:
                yield Failed(error if not verdict.elsewhere else _explained(error, why), route)
                return
            await asyncio.sleep(self._budget.wait_s(len(tried)))
            # One that has output goes on only where the same numbers are computed.
            again = entry.job._replace(numerics_id=numerics if carry.begun else "")
            try:
                lease = await self.turnstile.again(again, books.ticket, tried)
            except CamshaftError as nowhere:
                yield Failed(nowhere.info(), route)
                return

    def _why_not(self, carry: Carry, verdict: Verdict, numerics: str, ticket: Ticket, tries: _Tries) -> str:
        """Why the request is not tried elsewhere; "" where it is."""
        if not verdict.elsewhere:
            return "it would fail elsewhere too"
        if carry.begun and (not numerics or not carry.movable):
            return "its replica's numerics are its own, so that another one would go on with other words"
        now = self._clock.now()
        if not tries.died and self._router.rests_s(now) > ticket.deadline_at - now:
            return "every replica asked to be left alone for longer than the deadline"
        if tries.died and tries.n <= _MOVES:
            # What a dead replica had in flight is bounded by its slots; moving it cannot feed an overload.
            return ""
        return "" if self._budget.spend(tries.n, now) else "too much is being tried again already"

    def _raise_if_refused(self, now: float, limit_s: float) -> None:
        refusal = self._router.refusal(now)
        # Whoever comes while a replica is on its way may wait for it; where the version rests, one more replica changes nothing.
        if refusal is not None and (isinstance(refusal, CircuitOpen) or not self.turnstile.expecting):
            raise refusal
        if (rests_s := self._router.rests_s(now)) > limit_s and not self.turnstile.expecting:
            raise Overloaded("every replica of this model asked to be left alone for longer than the deadline", retry_after_s=rests_s)


def _explained(error: ErrorInfo, why: str) -> ErrorInfo:
    return msgspec.structs.replace(error, message=f"{error.message}; the answer could not go on elsewhere: {why}")
