"""VirtualGateway: the real line, limits and router in front of virtual replicas, as the dispatcher puts them together."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import NamedTuple

from camshaft.bench.virtual import Shape, Task, Timeline, VirtualReplica
from camshaft.errors import CamshaftError
from camshaft.gateway.breaker import BreakerConfig
from camshaft.gateway.fair import W_IN, W_OUT
from camshaft.gateway.limit import Cost, Grant, Limiter
from camshaft.gateway.line import Line, Ticket
from camshaft.gateway.outcome import Outcome
from camshaft.gateway.policy import Job, RouteConfig, make_policy
from camshaft.gateway.route import Lease, Router
from camshaft.types import ReplicaInfo

_LOOK = 16  # tickets that one attempt to place looks at


class Call(NamedTuple):
    """What a client asks for."""

    tenant: str
    n_prompt: int
    n_output: int  # tokens that the answer will have
    rank: int = 0
    n_output_most: int = 0  # that it asks for at most; 0: as many as it will have
    deadline_s: float = 1e6
    promise: bytes = b""


class Record:
    """What became of a call. Times are virtual seconds; -1: it never came to that."""

    __slots__ = ("arrived_at", "call", "ended_at", "error", "first_at", "n_produced", "placed_at")

    def __init__(self, call: Call, arrived_at: float) -> None:
        self.call = call
        self.arrived_at = arrived_at
        self.placed_at = self.first_at = self.ended_at = -1.0
        self.n_produced = 0
        self.error: CamshaftError | None = None


class _Flight:
    __slots__ = ("grant", "lease", "n_cached", "record", "task", "ticket")

    def __init__(self, record: Record, ticket: Ticket, task: Task, grant: Grant | None) -> None:
        self.record = record
        self.ticket = ticket
        self.task = task
        self.grant = grant
        self.lease: Lease | None = None
        self.n_cached = 0


class VirtualGateway:
    """Listens to its replicas. `ask` is the whole interface: it raises what the edge would answer.

    Without fair shares everybody is in one lane of the line: first come, first served within a class.
    """

    def __init__(self, timeline: Timeline, line: Line, route: RouteConfig, limiter: Limiter | None = None, *, fair: bool = True) -> None:
        self.line = line
        self.service: defaultdict[str, float] = defaultdict(float)  # by tenant, weighted tokens: input when placed, output as it comes
        self.waiting: Counter[str] = Counter()  # by tenant
        self._fair = fair
        self.router = Router(make_policy(route), route, BreakerConfig(), random.Random(1))
        self.records: list[Record] = []
        self._timeline = timeline
        self._limiter = limiter
        self._replicas: dict[str, VirtualReplica] = {}
        self._flights: dict[int, _Flight] = {}
        self._timer_at = float("inf")
        self._pumping = False

    def join(self, name: str, replica: VirtualReplica, shape: Shape) -> None:
        info = ReplicaInfo(
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=shape.max_num_batched_tokens,
            kv_tokens=shape.n_blocks * shape.block_size,
            block_size=shape.block_size,
        )
        self._replicas[name] = replica
        self.router.join(name, info, self._timeline.now)

    def ask(self, call: Call) -> Record:
        """Raises what the limits or the line refuse it with; either keeps a place at the other for whoever it tells to come back."""
        now, limiter = self._timeline.now, self._limiter
        most = call.n_output_most or call.n_output
        record = Record(call, now)
        ticket = Ticket(
            key=len(self.records) + 1,
            tenant=call.tenant if self._fair else "",
            rank=call.rank,
            n_prompt=call.n_prompt,
            n_output_most=most,
            arrived_at=now,
            deadline_at=now + call.deadline_s,
            promise=call.promise,
        )
        cost, grant = Cost(call.n_prompt, most, call.promise), None
        try:
            grant = limiter.admit(call.tenant, cost, now) if limiter is not None else None
            self.line.enter(ticket, now)
        except CamshaftError as error:
            if limiter is not None and error.retry_after_s is not None:
                due_at = now + error.retry_after_s
                if grant is None:
                    due_at = self.line.expect(ticket, due_at, now)
                    error.retry_after_s = due_at - now
                    limiter.put_off(call.promise, due_at)
                else:
                    grant.put_off(limiter, call.promise, due_at, now)
            elif grant is not None:
                grant.close(now)
            raise
        self.records.append(record)
        self.waiting[call.tenant] += 1
        task = Task(ticket.key, call.n_prompt, call.n_output, rank=call.rank, tenant=call.tenant)
        self._flights[ticket.key] = _Flight(record, ticket, task, grant)
        self._soon()
        self._arm()
        return record

    # -------------------------------------------------------------------------------------------------------- listener

    def started(self, task: Task, n_cached: int) -> None:
        flight, now = self._flights[task.key], self._timeline.now
        flight.n_cached = n_cached
        self.line.cached(flight.ticket, n_cached)
        if flight.lease is not None:
            flight.lease.started(n_cached, now)

    def produced(self, task: Task, n: int) -> None:
        flight, now = self._flights[task.key], self._timeline.now
        if not flight.record.n_produced:
            flight.record.first_at = now
        flight.record.n_produced += n
        self.service[task.tenant] += W_OUT * n
        self.line.produced(flight.ticket, n)
        if flight.lease is not None:
            flight.lease.produced(n, now)
        self._soon()

    def ended(self, task: Task) -> None:
        self._end(task.key, None)

    # --------------------------------------------------------------------------------------------------------- private

    def _end(self, key: int, error: CamshaftError | None) -> None:
        flight, now = self._flights.pop(key), self._timeline.now
        flight.record.ended_at, flight.record.error = now, error
        if flight.lease is None:
            self._waits_no_more(flight)
        self.line.leave(flight.ticket, now)
        if flight.lease is not None:
            flight.lease.close(Outcome.SUCCESS, now)
        if flight.grant is not None:
            if error is None:
                flight.grant.settle(flight.task.n_prompt, flight.n_cached, flight.record.n_produced, now)
            flight.grant.close(now)
        self._soon()

    def _soon(self) -> None:
        if not self._pumping and len(self.line):
            self._pumping = True
            self._timeline.after(0.0, self._pump)

    def _pump(self) -> None:
        self._pumping = False
        while any(self._try_place(ticket) for ticket in self.line.first(_LOOK, self._timeline.now)):
            pass

    def _try_place(self, ticket: Ticket) -> bool:
        now = self._timeline.now
        lease = self.router.place(Job((), ticket.n_prompt, ticket.n_output_most, ticket.rank), now)
        if lease is None:
            return False
        flight = self._flights[ticket.key]
        flight.lease, flight.record.placed_at = lease, now
        self.line.take(ticket, now)
        self.service[flight.task.tenant] += W_IN * ticket.n_prompt
        self._waits_no_more(flight)
        self._replicas[lease.replica].submit(flight.task)
        return True

    def _waits_no_more(self, flight: _Flight) -> None:
        tenant = flight.task.tenant
        self.waiting[tenant] -= 1
        if not self.waiting[tenant]:
            del self.waiting[tenant]

    def _arm(self) -> None:
        at = self.line.next_timer()
        if at is not None and at < self._timer_at:
            self._timer_at = at
            self._timeline.at(at, self._expire)

    def _expire(self) -> None:
        self._timer_at = float("inf")
        for ticket, error in self.line.expire(self._timeline.now):
            self._end(ticket.key, error)
        self._arm()
