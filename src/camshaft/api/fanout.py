"""Several requests of one call as one stream of events, each with its choice's index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import cast

from camshaft.errors import CamshaftError, EngineFault, from_info
from camshaft.types import Event, Failed, Finished, Request, Upstream

# Events of all choices that may wait for the writer. Beyond it the upstream's own queue holds them back.
WAITING_EVENTS = 64


def events(upstream: Upstream, requests: Sequence[Request]) -> AsyncGenerator[tuple[int, Event], None]:
    """(index, event) in order of arrival until each request's Finished was given. A failure of one is raised and ends all.

    Close it (`aclosing`) to cancel what still runs.
    """
    return _checked(upstream, requests[0], 0) if len(requests) == 1 else _joined(upstream, requests)


async def _joined(upstream: Upstream, requests: Sequence[Request]) -> AsyncGenerator[tuple[int, Event], None]:
    queue: asyncio.Queue[tuple[int, Event | CamshaftError]] = asyncio.Queue(WAITING_EVENTS)
    pumps = [asyncio.ensure_future(_pump(upstream, request, i, queue)) for i, request in enumerate(requests)]
    try:
        left = len(pumps)
        while left:
            index, came = await queue.get()
            if isinstance(came, CamshaftError):
                raise came
            left -= isinstance(came, Finished)
            yield index, came
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(upstream: Upstream, request: Request, index: int, queue: asyncio.Queue[tuple[int, Event | CamshaftError]]) -> None:
    try:
        async with aclosing(_checked(upstream, request, index)) as stream:
            async for came in stream:
                await queue.put(came)
    except CamshaftError as error:
        await queue.put((index, error))


async def _checked(upstream: Upstream, request: Request, index: int) -> AsyncGenerator[tuple[int, Event], None]:
    """The request's events up to its terminal one, with Failed raised. Raises EngineFault for a stream that just stops."""
    # Every stream is an async generator or has its aclose; the protocol says that closing cancels.
    stream = cast(AsyncGenerator[Event, None], upstream.stream(request))
    async with aclosing(stream):
        async for event in stream:
            if isinstance(event, Failed):
                raise from_info(event.error)
            yield index, event
            if isinstance(event, Finished):
                return
    raise EngineFault("the engine's stream ended without saying how")
