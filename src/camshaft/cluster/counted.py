"""Counted: a backend that knows how many of its streams are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

from camshaft.cluster.backend import Backend
from camshaft.errors import Draining
from camshaft.types import Event, Failed, Health, Load, ReplicaInfo, Request


class Counted:
    """Implements Backend. The count belongs to a context that closes with the stream, so it cannot leak."""

    def __init__(self, name: str, backend: Backend) -> None:
        self._name = name
        self._backend = backend
        self._held = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.n_streams = 0

    @property
    def info(self) -> ReplicaInfo:
        return self._backend.info

    @property
    def load(self) -> Load:
        return self._backend.load

    def hold(self) -> None:
        """Take nothing new; what runs goes on."""
        self._held = True

    async def idle(self) -> None:
        """Returns when no stream is open."""
        await self._idle.wait()

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        if self._held:
            yield Failed(Draining(f"{self._name} is draining; try another replica").info())
            return
        self.n_streams += 1
        self._idle.clear()
        try:
            # Every stream has its aclose; the protocol says that closing cancels.
            async with aclosing(cast(AsyncGenerator[Event, None], self._backend.stream(request))) as events:
                async for event in events:
                    yield event
        finally:
            self.n_streams -= 1
            if not self.n_streams:
                self._idle.set()

    async def health(self) -> Health:
        return await self._backend.health()

    async def lost(self) -> str:
        return await self._backend.lost()

    async def metrics(self) -> bytes:
        return await self._backend.metrics()

    async def close(self) -> None:
        self._held = True
        await self._backend.close()
