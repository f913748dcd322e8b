"""A fake server of OpenAI's API and a backend over it, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec

from camshaft.bench.fake_openai import FakeOpenAI, Play
from camshaft.clock import SystemClock
from camshaft.cluster.estimate import TokenEstimate
from camshaft.cluster.foreign import Access, ForeignConfig
from camshaft.cluster.http1 import parse_address
from camshaft.cluster.openai import OpenAIBackend, Remote
from camshaft.types import ChatPrompt, Delta, Event, Request, SamplingParams

FAKE = Access("fake")
GREEDY = SamplingParams(temperature=0, max_tokens=8)


class StubLife:
    """Lives until a test says otherwise."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.closed = 0

    async def lost(self) -> str:
        return await asyncio.shield(self.ended)

    async def close(self) -> None:
        self.closed += 1


class Rig(NamedTuple):
    server: FakeOpenAI
    backend: OpenAIBackend
    life: StubLife
    remote: Remote

    def last_body(self) -> dict[str, Any]:
        return dict(msgspec.json.decode(self.server.asked[-1]))


@asynccontextmanager
async def rig(play: Play | None = None, config: ForeignConfig | None = None, access: Access = FAKE) -> AsyncIterator[Rig]:
    """A server that plays `play` to everybody who does not ask for something else."""
    server = FakeOpenAI(play)
    await server.start()
    remote = Remote(parse_address(server.url), access, config or ForeignConfig(), TokenEstimate())
    life = StubLife()
    backend = OpenAIBackend(remote, life, SystemClock())
    try:
        yield Rig(server, backend, life, remote)
    finally:
        await backend.close()
        await server.close()


def asking(play: Play | None = None, *, sampling: SamplingParams = GREEDY, deadline_s: float | None = 20.0) -> Request:
    """A chat request, which gets the play."""
    content = "hello there" if play is None else msgspec.json.encode(play).decode()
    prompt = ChatPrompt(({"role": "user", "content": content},))
    return Request(id="r1", prompt=prompt, sampling=sampling, deadline_s=deadline_s)


async def events_of(backend: OpenAIBackend, request: Request) -> list[Event]:
    async with asyncio.timeout(30):
        return [event async for event in backend.stream(request)]


def text_of(events: Sequence[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Delta))
