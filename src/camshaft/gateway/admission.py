"""Admission: what a request passes before it waits: its size, its tenant's limits, a place in line; and its books from then on."""

from __future__ import annotations

import hashlib
import itertools
from typing import NamedTuple

import msgspec

from camshaft.errors import CamshaftError
from camshaft.gateway.limit import Cost, Grant, Limiter
from camshaft.gateway.line import Line, Ticket
from camshaft.gateway.route import Job, Lease
from camshaft.gateway.size import Sizer
from camshaft.gateway.turnstile import Turnstile, Waiting
from camshaft.types import Clock, Delta, Event, Finished, Request, Started


class Gates(NamedTuple):
    """Where a request is measured and held up."""

    limiter: Limiter
    line: Line
    turnstile: Turnstile
    sizer: Sizer
    clock: Clock


class Books:
    """What is counted of one request, in line, in its tenant's limits and on its replica. `close` takes all of it out, once."""

    __slots__ = ("_begun", "_clock", "_grant", "_line", "n_cached", "n_output", "n_prompt", "ticket")

    def __init__(self, ticket: Ticket, grant: Grant, line: Line, clock: Clock) -> None:
        self.ticket = ticket
        self.n_prompt = ticket.n_prompt
        self.n_cached = 0
        self.n_output = 0
        self._grant = grant
        self._line = line
        self._clock = clock
        self._begun = False

    def see(self, event: Event, lease: Lease) -> bool:
        """Count what came from a replica. Whether its prompt is computed with this, so that another's may be."""
        if isinstance(event, Delta):
            n = len(event.ids) or event.n_tokens
            self.n_output += n
            self._line.produced(self.ticket, n)
            return lease.produced(n, self._clock.now())
        if isinstance(event, Started):
            if not self._begun:
                self._begun, self.n_cached = True, max(0, event.n_cached)
            lease.started(event.n_cached, self._clock.now())
            self._line.cached(self.ticket, event.n_cached)
        elif isinstance(event, Finished):
            # Its own word, where another server counts.
            self.n_prompt, self.n_cached = event.usage.n_prompt, event.usage.n_cached
            self.n_output = max(self.n_output, event.usage.n_output)
            lease.ended(event.usage.n_cached, self._clock.now())
        return False

    def close(self) -> None:
        """Idempotent. What was reserved and not used goes back."""
        now = self._clock.now()
        self._line.leave(self.ticket, now)
        if self._begun:
            self._grant.settle(self.n_prompt, self.n_cached, self.n_output, now)
        self._grant.close(now)


class Entry(NamedTuple):
    """A request that was let in and waits for its turn."""

    job: Job
    books: Books
    waiting: Waiting


class Admission:
    """One per version."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._keys = itertools.count(1)

    def admit(self, request: Request) -> Entry:
        """`request` says when it came and how long it may take. Raises what its tenant's limits or the line refuse it with.

        Either keeps a place at the other too for whoever it tells to come back, so that the promise holds at both.
        """
        limiter, line, turnstile, sizer, clock = self._gates
        size, now = sizer.size(request), clock.now()
        ticket = Ticket(
            key=next(self._keys),
            tenant=request.tenant,
            rank=request.priority,
            n_prompt=size.n_prompt,
            n_output_most=size.n_output_most,
            arrived_at=request.arrived_at,
            deadline_at=request.arrived_at + (request.deadline_s or 0.0),
            promise=digest(request),
        )
        job = Job(size.blocks, size.n_prompt, min(size.n_output_most, int(line.mean_output)), request.priority)
        grant: Grant | None = None
        try:
            grant = limiter.admit(request.tenant, Cost(size.n_prompt, request.sampling.max_tokens, ticket.promise), now)
            waiting = turnstile.enter(ticket, job)
        except CamshaftError as error:
            self._refused(error, ticket, grant, now)
            raise
        return Entry(job, Books(ticket, grant, line, clock), waiting)

    def _refused(self, error: CamshaftError, ticket: Ticket, grant: Grant | None, now: float) -> None:
        limiter, line = self._gates.limiter, self._gates.line
        if grant is None:
            if error.retry_after_s is not None:
                due_at = line.expect(ticket, now + error.retry_after_s, now)
                error.retry_after_s = due_at - now
                limiter.put_off(ticket.promise, due_at)
        elif error.retry_after_s is not None:
            grant.put_off(limiter, ticket.promise, now + error.retry_after_s, now)
        else:
            grant.close(now)


def digest(request: Request) -> bytes:
    """By which a client that comes back with the same request is known."""
    said = msgspec.msgpack.encode((request.tenant, request.model, request.choice, request.prompt, request.sampling.max_tokens))
    return hashlib.blake2b(said, digest_size=16).digest()
