"""Door: who may enter a line. Bounds, deadlines, and when one who is refused may come back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from camshaft.errors import CamshaftError, DeadlineExceeded, DeadlineUnmeetable, Overloaded, QueueFull, RequestTooLarge
from camshaft.gateway.band import Band
from camshaft.gateway.drain import Drain
from camshaft.gateway.line_config import LineConfig
from camshaft.gateway.promise import Held, Place, Promises
from camshaft.gateway.ticket import Ticket

_EARLY_S = 0.1  # a client's timer may be a little fast
_LEAST_S = 1.0  # what a Retry-After can say
_MOST_S = 3600.0
_SAFE = 1.2  # the measured speed varies: a place is promised a fifth later than it says
_SLIP = 1.1  # newcomers may use half of that
_SLACK = 1.5  # and what was promised is held, though the bound be passed by half: the machine may have become slower since
_SURE = 0.8  # share of the estimated wait that is as good as certain
_NEARLY_EMPTY = 0.25  # of a bound: below it newcomers are let in whatever is promised, or replicas would idle


class _Bound(NamedTuple):
    """A bound in requests and in tokens, and what is there already."""

    most: Held
    queued: Held
    promised: Held

    def fits(self, n_tokens: int, place: Place | None) -> bool:
        """Whether one more fits. What is promised to others is taken, unless the one who asks was promised a place that is free now."""
        queued = self.queued
        if place is not None:
            return not queued.n_requests or self._within(queued, n_tokens, _SLACK)
        if not queued.n_requests or self._within(queued, n_tokens, _NEARLY_EMPTY):
            return True
        return self._within(queued.plus(*self.promised), n_tokens, 1.0)

    def _within(self, there: Held, n_tokens: int, scale: float) -> bool:
        return there.n_requests + 1 <= scale * self.most.n_requests and there.n_tokens + n_tokens <= scale * self.most.n_tokens

    def over(self, n_tokens: int) -> Held:
        """How much must leave until one more fits, after all that is promised."""
        there = self.queued.plus(*self.promised).plus(1, n_tokens)
        return Held(max(0, there.n_requests - self.most.n_requests), max(0, there.n_tokens - self.most.n_tokens))


class Door:
    """Looks at a line and decides; keeps the promises and nothing else."""

    def __init__(self, config: LineConfig, drain: Drain, bands: Mapping[int, Band]) -> None:
        self._config = config
        self._drain = drain
        self._bands = bands
        self.promises = Promises(config.grace_s, config.max_promises, int(config.tenant_share * config.max_promises))

    def admit(self, ticket: Ticket, band: Band, now: float) -> None:
        """Fetch the place kept for it, if one is. Raises where it may not enter, and then has kept a place where that is promised."""
        config = self._config
        if ticket.n_prompt > config.max_tokens:
            what = f"a prompt of {ticket.n_prompt} tokens can never wait in a line that holds {config.max_tokens}"
            raise RequestTooLarge(f"{what}; shorten it or raise max_tokens of the line", param="prompt")
        self._check_deadline(ticket, band, now)
        self.promises.lapse(now)
        place = self.promises.find(ticket.promise)
        due = place if place is not None and now >= place.due_at - _EARLY_S else None
        mine = self._share_of(ticket.tenant)
        whole = self._whole()
        if not mine.fits(ticket.n_prompt, due):
            wait_s = self._tenant_wait_s(mine.over(ticket.n_prompt), ticket.tenant, band)
            wait_s = max(wait_s, self._whole_wait_s(whole, ticket.n_prompt, now))
            what = f"{mine.queued.n_requests} requests with {mine.queued.n_tokens} prompt tokens of yours wait already"
            raise self._refusal(Overloaded, what, wait_s, ticket, now)
        if not whole.fits(ticket.n_prompt, due) and not (due is None and self._slips_in(whole, ticket.n_prompt, now)):
            wait_s = self._whole_wait_s(whole, ticket.n_prompt, now)
            what = f"{whole.queued.n_requests} requests with {whole.queued.n_tokens} prompt tokens wait already"
            raise self._refusal(QueueFull, what, wait_s, ticket, now)
        if place is not None:
            self.promises.drop(place)

    def expect(self, ticket: Ticket, due_at: float, now: float) -> float:
        """Keep a place for one whom something before this line tells to come back at `due_at`; when both have room for it."""
        self.promises.lapse(now)
        due_at = max(due_at, now + _SAFE * self._whole_wait_s(self._whole(), ticket.n_prompt, now))
        self.promises.keep(ticket.tenant, ticket.promise, ticket.n_prompt, due_at, now)
        return due_at

    def worked_off_s(self) -> float:
        """When all that waits now will have been taken, at the measured rate."""
        return _bounded(self._work_s())

    # --------------------------------------------------------------------------------------------------------- private

    def _work_s(self) -> float:
        rate = self._drain.rate()
        return sum(band.work for band in self._bands.values()) / rate.work if rate is not None else 0.0

    def _whole(self) -> _Bound:
        queued = Held(sum(b.n_queued for b in self._bands.values()), sum(b.n_tokens for b in self._bands.values()))
        return _Bound(Held(self._config.max_requests, self._config.max_tokens), queued, self.promises.held)

    def _share_of(self, tenant: str) -> _Bound:
        config = self._config
        lanes = [band.lanes[tenant] for band in self._bands.values() if tenant in band.lanes]
        queued = Held(sum(len(lane.tickets) for lane in lanes), sum(lane.n_tokens for lane in lanes))
        share = config.tenant_share
        most = Held(max(1, int(share * config.max_requests)), max(1, int(share * config.max_tokens)))
        return _Bound(most, queued, self.promises.held_of(tenant))

    def _slips_in(self, whole: _Bound, n_tokens: int, now: float) -> bool:
        """There is room now, and when each promised place is due there will be room for it all the same."""
        if self._drain.rate() is None or not _Bound(whole.most, whole.queued, Held()).fits(n_tokens, None):
            return False
        return self._before(whole, n_tokens, now, _SLIP) == Held()

    def _whole_wait_s(self, whole: _Bound, n_tokens: int, now: float) -> float:
        """When one more fits without being in the way of anybody who was promised a place."""
        before = self._before(whole, n_tokens, now, _SAFE)
        return self._wait_s(_Bound(whole.most, whole.queued, before).over(n_tokens))

    def _before(self, whole: _Bound, n_tokens: int, now: float, safe: float) -> Held:
        """How many of the places promised must come first: up to the last one that would not be free in time with one more before it.

        From the end: what is due long after its turn is passed over, and the first that is not ends the search. Plain numbers, for
        there may be thousands.
        """
        rate, (n, tokens) = self._drain.rate(), self.promises.held
        if rate is None:
            return self.promises.held
        per_request, per_token = safe / rate.n_requests, safe / rate.n_tokens if rate.n_tokens else 0.0
        n_over = whole.queued.n_requests + 1 - whole.most.n_requests
        tokens_over = whole.queued.n_tokens + n_tokens - whole.most.n_tokens
        for place in reversed(self.promises):
            if place.due_at < now + max((n_over + n) * per_request, (tokens_over + tokens) * per_token):
                return Held(n, tokens)
            n, tokens = n - 1, tokens - place.n_tokens
        return Held()

    def _check_deadline(self, ticket: Ticket, band: Band, now: float) -> None:
        left_s = ticket.deadline_at - now
        if left_s <= 0:
            raise DeadlineExceeded("the deadline passed before the request could wait for a replica; allow more time")
        rate = self._drain.rate()
        if not self._config.refuse_unmeetable or rate is None or not self._drain.well_founded:
            return
        if sum(b.work for b in self._bands.values()) * _SURE <= left_s * rate.work:
            return
        # Of better classes only what waits now is counted, and of its own only what surely goes first: a lower bound of the wait.
        before = sum(b.work for b in self._bands.values() if b.rank < band.rank) + band.work_before(ticket.tenant)
        wait_s = _SURE * before / rate.work
        if wait_s > left_s:
            what = f"about {before / rate.work:.0f} s of work wait before it, and its deadline is in {left_s:.1f} s"
            retry_s = _bounded(wait_s - left_s)
            raise DeadlineUnmeetable(f"{what}; allow more time or try again in {math.ceil(retry_s)} s", retry_after_s=retry_s)

    def _wait_s(self, over: Held) -> float:
        rate = self._drain.rate()
        if rate is None:
            return 0.0
        return max(over.n_requests / rate.n_requests, over.n_tokens / rate.n_tokens if over.n_tokens else 0.0)

    def _tenant_wait_s(self, over: Held, tenant: str, band: Band) -> float:
        """The same for a tenant's own lane, which gets its share of the class's service, or more."""
        rate, lane = band.drain.rate(), band.lanes.get(tenant)
        if rate is None or lane is None:
            return self._wait_s(over)
        work = max(over.n_requests * lane.work / len(lane.tickets), over.n_tokens * lane.work / max(1, lane.n_tokens))
        return work / (rate.work * band.share(tenant))

    def _refusal(self, kind: type[CamshaftError], what: str, wait_s: float, ticket: Ticket, now: float) -> CamshaftError:
        """Keeps a place, or moves the one whose time came and whose room did not."""
        retry_s = _bounded(_SAFE * wait_s)
        place = self.promises.find(ticket.promise)
        if place is not None and now >= place.due_at - _EARLY_S:
            self.promises.move(place, now + retry_s)
        elif self.promises.keep(ticket.tenant, ticket.promise, ticket.n_prompt, now + retry_s, now) is None and place is not None:
            retry_s = _bounded(place.due_at - now)  # it came too early: the same place
        return kind(f"{what}; try again in {math.ceil(retry_s)} s", retry_after_s=retry_s)


def _bounded(seconds: float) -> float:
    return min(_MOST_S, max(_LEAST_S, seconds))
