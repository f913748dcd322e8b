"""Metered: a tenant's limits before everything that costs something."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from camshaft.errors import CamshaftError
from camshaft.gateway.dispatch import digest
from camshaft.gateway.limit import Cost, Limiter
from camshaft.gateway.size import Sizer
from camshaft.types import Clock, Delta, Event, Failed, Finished, Health, Request, Started, Upstream


class Metered:
    """An Upstream: reserves before, settles after with what was used, and gives back what was not."""

    def __init__(self, limiter: Limiter, sizer: Sizer, inner: Upstream, clock: Clock) -> None:
        self._limiter = limiter
        self._sizer = sizer
        self._inner = inner
        self._clock = clock

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        size = self._sizer.size(request)
        asked = request.sampling.max_tokens
        try:
            grant = self._limiter.admit(request.tenant, Cost(size.n_prompt, asked, digest(request)), self._clock.now())
        except CamshaftError as error:
            yield Failed(error.info())
            return
        n_prompt, n_cached, n_output = size.n_prompt, 0, 0
        begun = False
        try:
            stream = cast(AsyncGenerator[Event, None], self._inner.stream(request))
            async with aclosing(stream):
                async for event in stream:
                    if isinstance(event, Delta):
                        n_output += len(event.ids) or event.n_tokens
                    elif isinstance(event, Started):
                        begun, n_cached = True, max(0, event.n_cached)
                    elif isinstance(event, Finished):
                        # Its own word, where another server counts.
                        n_prompt, n_cached = event.usage.n_prompt, event.usage.n_cached
                        n_output = max(n_output, event.usage.n_output)
                    yield event
        finally:
            now = self._clock.now()
            if begun:
                grant.settle(n_prompt, n_cached, n_output, now)
            grant.close(now)

    async def health(self) -> Health:
        return await self._inner.health()

    async def close(self) -> None:
        await self._inner.close()
