"""Limiter: what a tenant may use. Reserved before, settled after, and a Retry-After at which the request is let in.

A request takes one from the bucket of requests, and prompt + longest answer from the bucket of tokens. When it ended the difference to
what it used goes back: used is the prompt without what the prefix cache had, and the answer. Who is refused and comes with a digest gets a
place: its share is taken from the bucket's future at once, and it is let in when its time has come; a place that nobody fetches gives back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from camshaft.errors import RateLimited, RequestTooLarge
from camshaft.gateway.account import Account
from camshaft.gateway.bucket import Bucket
from camshaft.gateway.limit_config import LimitConfig as LimitConfig
from camshaft.gateway.promise import Place, Promises

_EARLY_S = 0.1  # a client's timer may be a little fast
_LONGEST_S = 3600.0  # a place further ahead is not kept
_PLACES, _PLACES_OF_ONE = 20_000, 2_000


class Cost(NamedTuple):
    """What a request asks for. `n_output_most` is None where it names no maximum."""

    n_prompt: int
    n_output_most: int | None = None
    promise: bytes = b""  # digest of tenant and request; b"": no place is kept


class Grant:
    """Leave to go on, until it is closed. A tenant without limits has one that does nothing."""

    __slots__ = ("_account", "_settled", "_since", "n_reserved")

    def __init__(self, account: Account | None, n_reserved: int, now: float) -> None:
        self._account = account
        self._since = now
        self._settled = False
        self.n_reserved = n_reserved  # tokens

    def settle(self, n_prompt: int, n_cached: int, n_output: int, now: float) -> None:
        """It used so much; the rest of what was reserved goes back, or what is lacking is taken. The first call counts."""
        if self._account is not None and not self._settled:
            self._settled = True
            self._account.settle(self.n_reserved, max(0, n_prompt - n_cached) + n_output, n_output, now)

    def put_off(self, limiter: Limiter, promise: bytes, due_at: float, now: float) -> None:
        """Refused further on, and told to come back at `due_at`: what was reserved is kept for it until then. It is closed."""
        account, self._account = self._account, None
        if account is not None:
            account.give(self.n_reserved, now)
            account.left(self._since)
            limiter.keep(account.tenant, promise, self.n_reserved, due_at, now)

    def close(self, now: float) -> None:
        """It ended. Idempotent. Unsettled, it used nothing: all that was reserved goes back, the request too."""
        account, self._account = self._account, None
        if account is not None:
            if not self._settled:
                account.give(self.n_reserved, now)
            account.ended(self._since, now)


class _Kept(msgspec.Struct, frozen=True):
    tenant: str
    digest: bytes
    n_tokens: int
    due_in_s: float


class LimiterState(msgspec.Struct, frozen=True):
    """What survives a restart. Monotonic clocks do not, so times are relative to `wall`, seconds since the epoch."""

    wall: float = 0.0
    levels: dict[str, tuple[float, float]] = {}  # requests, tokens
    outputs: dict[str, float] = {}  # mean answers
    places: tuple[_Kept, ...] = ()


class Limiter:
    """All tenants of one process. Pure: `now` is handed in."""

    def __init__(self, default: LimitConfig, tenants: Mapping[str, LimitConfig] = {}, *, grace_s: float = 10.0, most: int = 10_000) -> None:
        self._default = default
        self._tenants = dict(tenants)
        self._accounts: dict[str, Account] = {}
        self._promises = Promises(grace_s, _PLACES, _PLACES_OF_ONE)
        self._most = most
        self._sweep_at = most

    def configure(self, default: LimitConfig, tenants: Mapping[str, LimitConfig], now: float) -> None:
        """Other limits from now on. What is in use stays in use."""
        self._default, self._tenants = default, dict(tenants)
        for tenant, account in self._accounts.items():
            account.configure(self._config(tenant), now)

    def admit(self, tenant: str, cost: Cost, now: float) -> Grant:
        """Reserve for this request. Raises RequestTooLarge for what never fits, RateLimited with the seconds after which this will."""
        account = self._account(tenant, now)
        if account is None:
            return Grant(None, 0, now)
        self._lapse(now)
        n_tokens = self._reserve(account, cost)
        place = self._promises.find(cost.promise)
        if place is not None and self._may_fetch(account, place, now):
            self._promises.drop(place)
            account.fetch(place.n_tokens, now)
            account.began(now)
            return Grant(account, place.n_tokens, now)
        wait_s, what = account.wait(n_tokens, self._promises.held_of(tenant).n_requests, now)
        if wait_s <= 0.0 and place is None:
            account.take(n_tokens, now)
            account.began(now)
            return Grant(account, n_tokens, now)
        raise self._refusal(account, cost, (wait_s, what, n_tokens), place, now)

    def put_off(self, promise: bytes, due_at: float) -> None:
        """Something further on has room only later: the place that was kept moves."""
        place = self._promises.find(promise)
        if place is not None and due_at > place.due_at:
            self._promises.move(place, due_at)

    def keep(self, tenant: str, promise: bytes, n_tokens: int, due_at: float, now: float) -> None:
        """Keep a place for one that is told elsewhere to come back at `due_at`."""
        account = self._account(tenant, now)
        if account is not None and self._promises.keep(tenant, promise, n_tokens, due_at, now) is not None:
            account.keep(n_tokens, now)

    def headers(self, tenant: str, now: float) -> dict[str, str]:
        """x-ratelimit-{limit,remaining,reset}-{requests,tokens} for the limits that this tenant has; reset is the time until it is full."""
        account = self._account(tenant, now)
        if account is None:
            return {}
        out: dict[str, str] = {}
        for name, bucket in (("requests", account.requests), ("tokens", account.tokens)):
            if bucket is not None:
                out[f"x-ratelimit-limit-{name}"] = f"{bucket.per_minute:.0f}"
                out[f"x-ratelimit-remaining-{name}"] = f"{max(0, math.floor(bucket.level(now) + 1e-6))}"
                out[f"x-ratelimit-reset-{name}"] = duration(bucket.full_s(now))
        return out

    def left(self, tenant: str, now: float) -> tuple[float, float]:
        """(requests, tokens) that it may still use right now; -1 where there is no limit."""
        account = self._accounts.get(tenant)
        if account is None:
            config = self._config(tenant)
            return float(config.requests_per_minute or -1), float(config.tokens_per_minute or -1)
        return _left(account.requests, now), _left(account.tokens, now)

    def n_running(self, tenant: str) -> int:
        account = self._accounts.get(tenant)
        return account.n_running if account is not None else 0

    # ----------------------------------------------------------------------------------------------------------- state

    def snapshot(self, now: float, wall: float) -> dict[str, Any]:
        """Plain data. `wall` is time.time(), which goes on while the process does not."""
        self._lapse(now)
        places = tuple(_Kept(p.tenant, p.digest, p.n_tokens, p.due_at - now) for p in self._promises)
        levels = {tenant: account.levels(now) for tenant, account in self._accounts.items()}
        outputs = {tenant: account.mean_output for tenant, account in self._accounts.items() if account.mean_output}
        state: dict[str, Any] = msgspec.to_builtins(LimiterState(wall, levels, outputs, places))
        return state

    def restore(self, state: Mapping[str, Any], now: float, wall: float) -> None:
        """What `snapshot` gave in an earlier life, the time in between counted. Raises msgspec.ValidationError for anything else."""
        kept = msgspec.convert(state, LimiterState)
        gone_s = max(0.0, wall - kept.wall)  # a clock set back lets no time pass
        for place in kept.places:
            due_at = now + place.due_in_s - gone_s
            self._promises.keep(place.tenant, place.digest, place.n_tokens, due_at, -math.inf)  # made long ago
        for tenant, levels in kept.levels.items():
            account = self._account(tenant, now)
            if account is not None:
                account.restore(levels, kept.outputs.get(tenant, 0.0), self._promises.held_of(tenant), now - gone_s)

    def check(self, now: float) -> None:
        """Prove the books. Raises AssertionError."""
        self._promises.check()
        for account in self._accounts.values():
            account.check(now)

    # --------------------------------------------------------------------------------------------------------- private

    def _config(self, tenant: str) -> LimitConfig:
        return self._tenants.get(tenant, self._default)

    def _account(self, tenant: str, now: float) -> Account | None:
        """None for a tenant without limits."""
        account = self._accounts.get(tenant)
        if account is None:
            config = self._config(tenant)
            if not (config.requests_per_minute or config.tokens_per_minute or config.concurrent_requests):
                return None
            if len(self._accounts) >= self._sweep_at:
                self._sweep(now)
            account = self._accounts[tenant] = Account(tenant, config, now)
        return account

    def _sweep(self, now: float) -> None:
        """Forget whose buckets are full and who has nothing running: they lose nothing by it. Beyond the bound, the fullest."""
        idle = [a for a in self._accounts.values() if not a.n_running and not self._promises.held_of(a.tenant).n_requests]
        idle.sort(key=lambda account: account.full_s(now))
        n_least = len(self._accounts) - self._most * 3 // 4
        for i, account in enumerate(idle):
            if i >= n_least and account.full_s(now) > 0.0:
                break
            del self._accounts[account.tenant]
        self._sweep_at = max(self._most, len(self._accounts) * 4 // 3 + 1)

    def _reserve(self, account: Account, cost: Cost) -> int:
        """Tokens to reserve. Raises RequestTooLarge where they can never fit."""
        if account.tokens is None:
            return 0
        most = int(account.tokens.per_minute)
        if cost.n_output_most is None:
            n_tokens = max(min(cost.n_prompt + account.expected_output(), most), cost.n_prompt)
        else:
            n_tokens = cost.n_prompt + cost.n_output_most
        if n_tokens > most:
            what = f"{cost.n_prompt} prompt tokens and up to {n_tokens - cost.n_prompt} to generate can never fit into the limit of {most}"
            raise RequestTooLarge(f"{what} tokens a minute; shorten the prompt or lower max_tokens", param="max_tokens")
        return n_tokens

    def _may_fetch(self, account: Account, place: Place, now: float) -> bool:
        """Its time has come, or all that is promised fits already; and a slot is free where slots are limited."""
        if not account.has_slot():
            return False
        if now >= place.due_at - _EARLY_S:
            return True
        n_others = self._promises.held_of(account.tenant).n_requests - 1
        return account.is_solvent(now) and account.has_slot(n_others)

    def _refusal(self, account: Account, cost: Cost, asked: tuple[float, str, int], place: Place | None, now: float) -> RateLimited:
        """Keeps a place and takes what it needs, or moves the one whose time came without a slot."""
        wait_s, what, n_tokens = asked
        promises = self._promises
        if place is not None and now >= place.due_at - _EARLY_S:
            n_others = promises.held_of(account.tenant).n_requests - 1
            wait_s, what = account.slot_wait(n_others, now)  # its tokens were taken when the place was made
            promises.move(place, now + wait_s)
        elif wait_s <= _LONGEST_S and promises.keep(account.tenant, cost.promise, n_tokens, now + wait_s, now) is not None:
            account.keep(n_tokens, now)
        elif place is not None:
            wait_s = place.due_at - now
        return RateLimited(f"{what}; try again in {math.ceil(wait_s)} s", retry_after_s=wait_s)

    def _lapse(self, now: float) -> None:
        for place in self._promises.lapse(now):
            account = self._accounts.get(place.tenant)
            if account is not None:
                account.fetch(place.n_tokens, now)
                account.give(place.n_tokens, now)


def duration(seconds: float) -> str:
    """As OpenAI writes it: 20ms, 1s, 6m0s."""
    if seconds < 1.0:
        return f"{math.ceil(seconds * 1000)}ms"
    whole = math.ceil(seconds)
    return f"{whole}s" if whole < 60 else f"{whole // 60}m{whole % 60}s"


def _left(bucket: Bucket | None, now: float) -> float:
    """-1 where there is no limit. What is promised already can take a level below 0, and that is nothing left."""
    return -1.0 if bucket is None else max(0.0, bucket.level(now))
