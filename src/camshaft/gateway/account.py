"""Account: one tenant's use of its limits."""

from __future__ import annotations

import math

from camshaft.gateway.bucket import Bucket
from camshaft.gateway.limit_config import LimitConfig

_LEARN = 0.1  # weight of one answer in the means
_GUESS_S = 5.0  # a request's time, before any ended
_SPREAD = 2.0  # mean deviations above the mean by which most requests have ended


class Account:
    """Two buckets and a count. A limit that is not set has no bucket."""

    def __init__(self, tenant: str, config: LimitConfig, now: float) -> None:
        self.tenant = tenant
        self.requests: Bucket | None = None
        self.tokens: Bucket | None = None
        self.n_running = 0
        self.mean_output = 0.0
        self._config = config
        self._starts: dict[float, int] = {}  # when those that run began, and how many then
        self._mean_s = 0.0
        self._deviation_s = 0.0
        self.configure(config, now)

    def configure(self, config: LimitConfig, now: float) -> None:
        self._config = config
        self.requests = _resized(self.requests, config.requests_per_minute, now)
        self.tokens = _resized(self.tokens, config.tokens_per_minute, now)

    def expected_output(self) -> int:
        """Tokens of an answer without a stated maximum: half as much again as those before it."""
        return math.ceil(1.5 * self.mean_output) if self.mean_output else self._config.output_estimate

    # --------------------------------------------------------------------------------------------------------- buckets

    def wait(self, n_tokens: int, n_promised: int, now: float) -> tuple[float, str]:
        """Seconds until one more request of so many tokens fits after all that is promised, and what it waits for. 0: it fits now."""
        waits = [(0.0, "")]
        if self.requests is not None:
            limit = f"the limit of {self.requests.per_minute:.0f} requests a minute is used up"
            waits.append((self.requests.wait_s(1, now), limit))
        if self.tokens is not None:
            left = max(0, math.floor(self.tokens.level(now)))
            limit = f"{n_tokens} tokens are asked for and {left} are left of {self.tokens.per_minute:.0f} a minute"
            waits.append((self.tokens.wait_s(n_tokens, now), limit))
        if not self.has_slot(n_promised):
            waits.append(self.slot_wait(n_promised, now))
        return max(waits)

    def take(self, n_tokens: int, now: float) -> None:
        """One request."""
        for bucket, n in self._parts(n_tokens):
            bucket.take(n, now)

    def give(self, n_tokens: int, now: float) -> None:
        """Back what `take` took."""
        for bucket, n in self._parts(n_tokens):
            bucket.give(n, now)

    def keep(self, n_tokens: int, now: float) -> None:
        """Take it for a place."""
        for bucket, n in self._parts(n_tokens):
            bucket.keep(n, now)

    def fetch(self, n_tokens: int, now: float) -> None:
        """A place that was kept is used."""
        for bucket, n in self._parts(n_tokens):
            bucket.fetch(n, now)

    def _parts(self, n_tokens: int) -> list[tuple[Bucket, int]]:
        return [(bucket, n) for bucket, n in ((self.requests, 1), (self.tokens, n_tokens)) if bucket is not None]

    def settle(self, n_reserved: int, n_used: int, n_output: int, now: float) -> None:
        if self.tokens is not None:
            self.tokens.give(n_reserved - n_used, now)
        if n_output:
            self.mean_output += (_LEARN if self.mean_output else 1.0) * (n_output - self.mean_output)

    def is_solvent(self, now: float) -> bool:
        """Whether all that was taken, promises included, is covered."""
        return all(bucket.wait_s(0, now) == 0.0 for bucket in (self.requests, self.tokens) if bucket is not None)

    def full_s(self, now: float) -> float:
        """Seconds until both buckets are full."""
        return max((bucket.full_s(now) for bucket in (self.requests, self.tokens) if bucket is not None), default=0.0)

    # ----------------------------------------------------------------------------------------------------------- slots

    def has_slot(self, n_promised: int = 0) -> bool:
        most = self._config.concurrent_requests
        return not most or self.n_running + max(0, n_promised) < most

    def began(self, now: float) -> None:
        self.n_running += 1
        self._starts[now] = self._starts.get(now, 0) + 1

    def left(self, since: float) -> None:
        """It never ran."""
        self.n_running -= 1
        self._starts[since] -= 1
        if not self._starts[since]:
            del self._starts[since]

    def ended(self, since: float, now: float) -> None:
        self.left(since)
        took_s = now - since
        if not self._mean_s:
            self._mean_s, self._deviation_s = took_s, 0.0
            return
        self._deviation_s += _LEARN * (abs(took_s - self._mean_s) - self._deviation_s)
        self._mean_s += _LEARN * (took_s - self._mean_s)

    def slot_wait(self, n_promised: int, now: float) -> tuple[float, str]:
        """Seconds until a slot is free after those promised, and why. What runs ends after the time that most took."""
        most = self._config.concurrent_requests
        most_s = self._mean_s + _SPREAD * self._deviation_s if self._mean_s else _GUESS_S
        most_s = max([most_s, *(now - start for start in self._starts)])  # those that run may take longer than those before them
        ends = sorted(max(start + most_s, now + 0.25 * most_s) for start, n in self._starts.items() for _ in range(n))
        rounds, i = divmod(max(0, self.n_running + n_promised - most), max(1, len(ends)))
        wait_s = ends[i] - now + rounds * most_s if ends else most_s
        return max(1.0, wait_s), f"{most} requests at once are the limit, and {self.n_running} run"

    # ----------------------------------------------------------------------------------------------------------- state

    def levels(self, now: float) -> tuple[float, float]:
        """Of both buckets; 0 where there is none. What runs now is thought to end with the process, and keeps what it reserved."""
        return tuple(bucket.level(now) if bucket is not None else 0.0 for bucket in (self.requests, self.tokens))  # type: ignore[return-value]

    def restore(self, levels: tuple[float, float], mean_output: float, kept: tuple[int, int], now: float) -> None:
        """`kept` is what was promised, requests and tokens."""
        self.mean_output = mean_output
        for bucket, level, n in zip((self.requests, self.tokens), levels, kept, strict=True):
            if bucket is not None:
                bucket.restore(level, n, now)

    def check(self, now: float) -> None:
        """Prove the books. Raises AssertionError."""
        assert self.n_running == sum(self._starts.values()) >= 0
        for bucket in (self.requests, self.tokens):
            assert bucket is None or bucket.kept >= 0
            assert bucket is None or bucket.level(now) + bucket.kept <= bucket.per_minute + 1e-6


def _resized(bucket: Bucket | None, per_minute: int, now: float) -> Bucket | None:
    if not per_minute:
        return None
    if bucket is None:
        return Bucket(per_minute, now)
    bucket.resize(per_minute, now)
    return bucket
