"""Observed: what became of each request of a version, told once at its end."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple, cast

import msgspec

from camshaft.observe.gateway import LEFT, Trip
from camshaft.types import ChatPrompt, Clock, Delta, Event, Failed, Finished, Health, Request, Route, Started, Upstream


class Seen(NamedTuple):
    """Whose requests are observed."""

    model: str
    version: str
    provider: str = "camshaft"  # who makes the engine, as traces have it
    rank: Callable[[str], int] = lambda tenant: 0  # a tenant's class
    onward: Callable[[str], str] = lambda trace: trace  # a caller's traceparent -> that of the call upstream


class Observed:
    """An Upstream around all others of a version."""

    def __init__(self, seen: Seen, inner: Upstream, clock: Clock, told: Callable[[Trip], None]) -> None:
        self._seen = seen
        self._inner = inner
        self._clock = clock
        self._told = told

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        arrived_at = request.arrived_at or self._clock.now()
        began_at = time.time() - (self._clock.now() - arrived_at)
        onward = self._seen.onward(request.trace)
        started, route, begun = Started(0, 0, 0.0), Route(), False
        ending, ttft_s, n_output = LEFT, 0.0, 0
        try:
            asked = request if onward == request.trace else msgspec.structs.replace(request, trace=onward)
            stream = cast(AsyncGenerator[Event, None], self._inner.stream(asked))
            async with aclosing(stream):
                async for event in stream:
                    if isinstance(event, Delta):
                        n_output += len(event.ids) or event.n_tokens
                        if not ttft_s and n_output:
                            ttft_s = self._clock.now() - arrived_at
                    elif isinstance(event, Started):
                        started, route, begun = event, event.route or route, True
                    elif isinstance(event, Finished):
                        ending, route = event.reason, event.route or route
                        n_output = max(n_output, event.usage.n_output)
                    elif isinstance(event, Failed):
                        ending, route = event.error.code, event.route or route
                    yield event
        finally:
            trip = Trip(
                model=self._seen.model,
                version=self._seen.version,
                replica=route.replica,
                tenant=request.tenant,
                request_id=request.id,
                operation="chat" if isinstance(request.prompt, ChatPrompt) else "text_completion",
                arrived_at=began_at,
                queue_s=started.queue_s,
                ttft_s=ttft_s,
                e2e_s=self._clock.now() - arrived_at,
                n_prompt=started.n_prompt,
                n_cached=max(0, started.n_cached),
                n_output=n_output,
                ending=ending,
                n_tries=route.n_tries,
                n_choices=request.sampling.n,
                trace=request.trace,
                onward=onward if onward != request.trace else "",
                begun=begun,
                provider=self._seen.provider,
                rank=max(request.priority, self._seen.rank(request.tenant)),
            )
            self._told(trip)

    async def health(self) -> Health:
        return await self._inner.health()

    async def close(self) -> None:
        await self._inner.close()
