"""Band: one class of a line. Each tenant has a lane in order of arrival; the lanes are ordered by the tenants' virtual token counters."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from camshaft.gateway.drain import Drain
from camshaft.gateway.fair import Fair
from camshaft.gateway.ticket import Ticket


class Lane:
    """The tickets of one tenant. Additions, removals and the head are O(1)."""

    __slots__ = ("n_tokens", "tickets", "work")

    def __init__(self) -> None:
        self.tickets: OrderedDict[int, Ticket] = OrderedDict()
        self.n_tokens = 0
        self.work = 0.0


class Band:
    def __init__(self, rank: int, weights: Callable[[str], float], most_tenants: int, memory_s: float) -> None:
        self.rank = rank
        self.fair = Fair(weights, most_tenants)
        self.drain = Drain(memory_s)
        self.lanes: dict[str, Lane] = {}
        self.since = 0.0  # it waits unserved; from there it ages
        self.owed = 0.0  # work that it is behind its least share
        self.work = 0.0
        self.n_queued = 0
        self.n_tokens = 0  # prompt tokens queued
        self._weights = weights

    def add(self, ticket: Ticket, now: float) -> None:
        self.drain.look(now, busy=True)
        if not self.n_queued:
            self.since, self.owed, self.work = now, 0.0, 0.0
        lane = self.lanes.get(ticket.tenant)
        if lane is None:
            lane = self.lanes[ticket.tenant] = Lane()
        lane.tickets[ticket.key] = ticket
        lane.n_tokens += ticket.n_prompt
        lane.work += ticket.work
        self.work += ticket.work
        self.n_queued += 1
        self.n_tokens += ticket.n_prompt
        self.fair.arrive(ticket.tenant)

    def take(self, ticket: Ticket, now: float) -> None:
        """It goes to a replica."""
        self.fair.admit(ticket.tenant, ticket.n_prompt)
        self._forget(ticket, now)
        if now > ticket.entered_at:
            self.drain.left(ticket.n_prompt, ticket.work)
        self.since = now
        self.owed = max(0.0, self.owed - ticket.work)

    def owe(self, work: float) -> None:
        """A better class was served: so much of that work was this one's. Bounded, so that no burst can be saved up."""
        head = self.head()
        if head is not None:
            self.owed = min(self.owed + work, 2 * head.work)

    def withdraw(self, ticket: Ticket, now: float) -> None:
        """It leaves unserved."""
        self.fair.withdraw(ticket.tenant)
        self._forget(ticket, now)

    def _forget(self, ticket: Ticket, now: float) -> None:
        lane = self.lanes[ticket.tenant]
        del lane.tickets[ticket.key]
        lane.n_tokens -= ticket.n_prompt
        lane.work -= ticket.work
        if not lane.tickets:
            del self.lanes[ticket.tenant]
        self.work -= ticket.work
        self.n_queued -= 1
        self.n_tokens -= ticket.n_prompt
        self.drain.look(now, busy=self.n_queued > 0)

    # ------------------------------------------------------------------------------------------------------------ order

    def head(self) -> Ticket | None:
        """The one whose turn it is."""
        for tenant in self.fair:
            return next(iter(self.lanes[tenant].tickets.values()))
        return None

    def first(self, n: int) -> list[Ticket]:
        """Up to `n`: the heads of the lanes in the order of the counters, then the second of each lane, and so on."""
        out: list[Ticket] = []
        rounds: list[Iterator[Ticket]] = []
        for tenant in self.fair:
            if len(rounds) == n:
                break
            rounds.append(iter(self.lanes[tenant].tickets.values()))
        while rounds and len(out) < n:
            left: list[Iterator[Ticket]] = []
            for lane in rounds:
                ticket = next(lane, None)
                if ticket is not None:
                    out.append(ticket)
                    left.append(lane)
            rounds = left
        return out[:n]

    # -------------------------------------------------------------------------------------------------------- estimates

    def work_before(self, tenant: str) -> float:
        """Work served before a request that this tenant added now, if nobody else came: its own lane, and what the others get meanwhile.

        When its lane is worked off its counter has grown by the lane's work over its weight; whoever is below that gets up to it first.
        O(tenants that wait).
        """
        lane = self.lanes.get(tenant)
        own = lane.work if lane is not None else 0.0
        start = self.fair.count(tenant) if lane is not None else max(self.fair.count(tenant), self.fair.level())
        until = start + own / self._weights(tenant)
        total = own
        for other, queue in self.lanes.items():
            if other != tenant:
                total += min(queue.work, max(0.0, (until - self.fair.count(other)) * self._weights(other)))
        return total

    def share(self, tenant: str) -> float:
        """Of this band's service, while all that wait now go on waiting: the tenant's weight over all of theirs."""
        mine = self._weights(tenant)
        total = sum(self._weights(other) for other in self.lanes)
        return mine / (total if tenant in self.lanes else total + mine)
