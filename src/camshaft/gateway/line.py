"""Line: who waits for a replica of one version, in which order, and who may not wait at all.

Order: classes first, with ageing; among the tenants of a class a fair share by virtual token counters; a tenant's own requests as they
came. All decisions are pure: numbers and `now` in, a decision out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from camshaft.errors import CamshaftError, DeadlineExceeded, QueueTimeout
from camshaft.gateway.band import Band
from camshaft.gateway.door import Door
from camshaft.gateway.drain import Amount, Drain
from camshaft.gateway.fair import W_IN, W_OUT
from camshaft.gateway.line_config import LineConfig as LineConfig
from camshaft.gateway.ticket import Ticket as Ticket
from camshaft.sched.timers import Timers

_CLASSES = 16  # ranks beyond are the last class
_OUTPUT_GUESS = 256  # tokens, before any answer ended
_LEARN = 0.05  # weight of one answer in the mean output


class LineState(msgspec.Struct, frozen=True):
    """What survives a restart: per class the level and the counters; the mean answer."""

    classes: dict[str, tuple[float, dict[str, float]]] = {}
    mean_output: float = 0.0


class Line:
    """A ticket is queued (enter), then taken or gone; a taken one is running until it leaves. `leave` is right at any time."""

    def __init__(self, config: LineConfig, weights: Callable[[str], float] = lambda _: 1.0) -> None:
        self.config = config
        self.drain = Drain(config.memory_s)
        self.bands: dict[int, Band] = {}
        self.door = Door(config, self.drain, self.bands)
        self._weights = weights
        self._queued: dict[int, Ticket] = {}
        self._running: dict[int, Ticket] = {}
        self._timers = Timers()
        self._mean_output = 0.0
        self._opens_at: float | None = None  # when others may pass again one that is waited for

    def __len__(self) -> int:
        """Tickets in line."""
        return len(self._queued)

    @property
    def n_tokens(self) -> int:
        """Prompt tokens in line."""
        return sum(band.n_tokens for band in self.bands.values())

    @property
    def n_running(self) -> int:
        return len(self._running)

    @property
    def mean_output(self) -> float:
        """Tokens of an answer, about."""
        return self._mean_output or _OUTPUT_GUESS

    def oldest_s(self, now: float) -> float:
        """How long the one that came first has waited."""
        return max((now - ticket.arrived_at for ticket in self._queued.values()), default=0.0)

    def by_tenant(self) -> dict[str, tuple[int, int]]:
        """(in line, running) of each tenant that has any."""
        queued = Counter(ticket.tenant for ticket in self._queued.values())
        running = Counter(ticket.tenant for ticket in self._running.values())
        return {tenant: (queued[tenant], running[tenant]) for tenant in queued | running}

    def depths(self) -> dict[int, int]:
        """Tickets in line by class."""
        return {rank: band.n_queued for rank, band in sorted(self.bands.items())}

    def rate(self) -> Amount | None:
        """What leaves the line in a second while work waits in it; None until something was measured."""
        return self.drain.rate()

    # ------------------------------------------------------------------------------------------------------------- way

    def enter(self, ticket: Ticket, now: float) -> None:
        """Take it into line. Otherwise raises, and it was never here:

        RequestTooLarge what can never fit; DeadlineExceeded, DeadlineUnmeetable what would be too late; Overloaded (429) where the
        tenant's share is full, QueueFull (503) where the whole line is, each with when to come back and, for a ticket with a promise
        digest, its place kept from then on.
        """
        assert ticket.key not in self._queued, f"ticket {ticket.key} waits already"
        assert ticket.key not in self._running, f"ticket {ticket.key} is taken already"
        ticket.entered_at = now
        ticket.work = W_IN * ticket.n_prompt + W_OUT * max(1.0, min(self.mean_output, ticket.n_output_most))
        band = self._band(ticket)
        self.drain.look(now, busy=bool(self._queued))
        self.door.admit(ticket, band, now)
        self.drain.look(now, busy=True)
        band.add(ticket, now)
        self._queued[ticket.key] = ticket
        self._timers.add(min(ticket.deadline_at, ticket.arrived_at + self.config.max_wait_s), ticket.key)

    def expect(self, ticket: Ticket, due_at: float, now: float) -> float:
        """Keep a place for one whom a limit tells to come back at `due_at`, or the promise would end here. When both have room for it."""
        self.drain.look(now, busy=bool(self._queued))
        return self.door.expect(ticket, due_at, now)

    def first(self, n: int, now: float) -> list[Ticket]:
        """Whom to place next, best first: try them in this order, take the first that fits, and ask again, since that changes the order.

        The heads of several tenants and then their next ones, so that one that fits nowhere does not stop the others. Where it was passed
        for `patience_s`, it does for as long: nobody of its class or a worse one goes before it, and then they may again.
        """
        bands = sorted((band for band in self.bands.values() if band.n_queued), key=self._order)
        out: list[Ticket] = []
        shut, self._opens_at = _CLASSES, None
        for i, band in enumerate(bands):
            head = band.head()
            if band.rank > shut or head is None:
                continue
            room = n - len(out)
            if i < len(bands) - 1:
                room -= min(n // 4, len(bands) - 1 - i)  # a glimpse of the other classes
            if (opens_at := self._shut_until(head, now)) is not None:
                shut, self._opens_at = band.rank, opens_at
                room = min(room, 1)
            out.extend(band.first(room))
        return out[:n]

    def take(self, ticket: Ticket, now: float) -> None:
        """It goes to a replica: its input is charged to its tenant."""
        assert self._queued.get(ticket.key) is ticket
        band = self._band(ticket)
        head = band.head()
        if head is not None and head is not ticket and head.passed_at is None:
            head.passed_at = now
        self._remove(ticket)
        band.take(ticket, now)
        for other in self.bands.values():
            if other.rank > band.rank and other.n_queued:
                other.owe(self.config.least_share * ticket.work)
        self.drain.look(now, busy=bool(self._queued))
        if now > ticket.entered_at:
            self.drain.left(ticket.n_prompt, ticket.work)
        self._running[ticket.key] = ticket

    def cached(self, ticket: Ticket, n_cached: int) -> None:
        """A replica began with it (0 included), and so much of its input was in the cache: that is given back. Later calls add nothing."""
        if ticket.key not in self._running or ticket.started:
            return
        ticket.started = True
        n = max(0, min(n_cached, ticket.n_prompt))
        if n:
            ticket.n_given_back = n
            self._band(ticket).fair.give_back(ticket.tenant, n)

    def produced(self, ticket: Ticket, n: int) -> None:
        """So many more output tokens."""
        if ticket.key in self._running and n > 0:
            ticket.started = True
            ticket.n_produced += n
            self._band(ticket).fair.produced(ticket.tenant, n)

    def leave(self, ticket: Ticket, now: float) -> None:
        """It ended, or its client left, wherever it is. Idempotent. What was charged and no replica ever began is given back."""
        band = self._band(ticket)
        if self._queued.get(ticket.key) is ticket:
            self._remove(ticket)
            band.withdraw(ticket, now)
            self.drain.look(now, busy=bool(self._queued))
        elif self._running.get(ticket.key) is ticket:
            del self._running[ticket.key]
            if not ticket.started:
                band.fair.give_back(ticket.tenant, ticket.n_prompt)
            band.fair.finish(ticket.tenant)
            if ticket.n_produced:
                self._mean_output += (_LEARN if self._mean_output else 1.0) * (ticket.n_produced - self._mean_output)

    def expire(self, now: float) -> list[tuple[Ticket, CamshaftError]]:
        """Remove from the line what is out of time, each with what to tell its client."""
        out: list[tuple[Ticket, CamshaftError]] = []
        for key in self._timers.due(now):
            ticket = self._queued.get(key)
            if ticket is None:
                continue
            waited_s = now - ticket.arrived_at
            self.leave(ticket, now)
            if now >= ticket.deadline_at:
                what = f"the deadline of {ticket.deadline_at - ticket.arrived_at:g} s passed in line; allow more time or come back later"
                out.append((ticket, DeadlineExceeded(what)))
            else:
                retry_s = self.door.worked_off_s()
                what = f"no replica was free within {waited_s:.0f} s; try again in {math.ceil(retry_s)} s"
                out.append((ticket, QueueTimeout(what, retry_after_s=retry_s)))
        return out

    def next_timer(self) -> float | None:
        """When `expire` may have something to do, or `first` an answer that no event brings about."""
        return min((at for at in (self._timers.next_at(), self._opens_at) if at is not None), default=None)

    # ----------------------------------------------------------------------------------------------------------- state

    def snapshot(self) -> dict[str, Any]:
        """The counters, as plain data."""
        classes = {str(rank): band.fair.snapshot() for rank, band in self.bands.items()}
        state: dict[str, Any] = msgspec.to_builtins(LineState(classes, self._mean_output))
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        """What `snapshot` gave in an earlier life, before anybody enters. Raises msgspec.ValidationError where it is something else."""
        kept = msgspec.convert(state, LineState)
        self._mean_output = max(0.0, kept.mean_output)
        for rank, (level, counts) in kept.classes.items():
            if rank.isdecimal():
                self._band_of(int(rank)).fair.restore(level, counts)

    def check(self) -> None:
        """Prove the books. Raises AssertionError."""
        assert not self._queued.keys() & self._running.keys()
        lanes = {key: t for band in self.bands.values() for lane in band.lanes.values() for key, t in lane.tickets.items()}
        assert lanes == self._queued
        for band in self.bands.values():
            mine = [t for lane in band.lanes.values() for t in lane.tickets.values()]
            assert (band.n_queued, band.n_tokens) == (len(mine), sum(t.n_prompt for t in mine))
            assert abs(band.work - sum(t.work for t in mine)) <= 1e-6 * max(1.0, band.work)
            assert band.fair.n_waiting == len(band.lanes)
            band.fair.check()
        self.door.promises.check()

    # --------------------------------------------------------------------------------------------------------- private

    def _band(self, ticket: Ticket) -> Band:
        return self._band_of(ticket.rank)

    def _band_of(self, rank: int) -> Band:
        rank = max(0, min(rank, _CLASSES - 1))
        band = self.bands.get(rank)
        if band is None:
            band = self.bands[rank] = Band(rank, self._weights, self.config.max_tenants, self.config.memory_s)
        return band

    def _order(self, band: Band) -> tuple[bool, float, int]:
        """A class that is owed a whole request goes first; then each by its rank, less its age.

        All age at one rate, so the order of two classes changes only when one of them is served: the key is constant meanwhile.
        """
        head = band.head()
        assert head is not None
        return not 0.0 < head.work <= band.owed, band.rank * self.config.age_s + band.since, band.rank

    def _shut_until(self, head: Ticket, now: float) -> float | None:
        """Until when nobody may pass this one; None while they may."""
        patience_s = self.config.patience_s
        if head.passed_at is None or patience_s <= 0:
            return None
        turn = int((now - head.passed_at) / patience_s)
        return head.passed_at + (turn + 1) * patience_s if turn % 2 else None

    def _remove(self, ticket: Ticket) -> None:
        del self._queued[ticket.key]
        self._timers.sweep(self._queued, len(self._queued))
