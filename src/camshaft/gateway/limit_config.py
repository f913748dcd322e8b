"""LimitConfig: what one tenant may use."""

from __future__ import annotations

from dataclasses import dataclass

from camshaft.config import opt


@dataclass(frozen=True)
class LimitConfig:
    """Limits of a tenant. 0 sets none."""

    requests_per_minute: int = opt(0, "requests that a tenant may send in a minute; 0 sets no limit", lo=0, hi=1_000_000_000)
    tokens_per_minute: int = opt(
        0, "tokens a minute: prompt (what the cache had comes back) and answer, reserved before and settled after", lo=0, hi=1 << 50
    )
    concurrent_requests: int = opt(0, "requests of a tenant that may run or wait at once; 0 sets no limit", lo=0, hi=1_000_000)
    output_estimate: int = opt(1024, "tokens reserved for an answer whose request names no maximum, until some were seen", lo=1, hi=1 << 30)
