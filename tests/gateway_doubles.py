"""Tickets and drives for tests of the gateway's policies."""

from __future__ import annotations

import itertools

from camshaft.gateway.line import Line, Ticket

_keys = itertools.count(1)


def ticket(
    tenant: str = "a", n_prompt: int = 10, *, rank: int = 0, at: float = 0.0, deadline_s: float = 1e6, promise: bytes = b""
) -> Ticket:
    """A request of 100 tokens of output at most."""
    return Ticket(
        key=next(_keys),
        tenant=tenant,
        rank=rank,
        n_prompt=n_prompt,
        n_output_most=100,
        arrived_at=at,
        deadline_at=at + deadline_s,
        promise=promise,
    )


def serve(line: Line, n: int, now: float, n_output: int = 0) -> list[Ticket]:
    """Take the first `n` one by one, as a dispatcher with ample room does; each gives `n_output` tokens and ends."""
    out: list[Ticket] = []
    for _ in range(n):
        for first in line.first(1, now):
            line.take(first, now)
            line.cached(first, 0)
            line.produced(first, n_output)
            line.leave(first, now)
            out.append(first)
    return out
