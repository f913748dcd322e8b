"""Encode: prompts become ids once, here, whichever replica computes them and however often they move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import cast

import msgspec

from camshaft.engine.encode import PromptEncoder
from camshaft.errors import CamshaftError, DeadlineExceeded
from camshaft.types import Event, Failed, Health, Request, TokenPrompt, Upstream


class Encode:
    """An Upstream before one that takes ids. Owns the encoder's threads."""

    def __init__(self, encoder: PromptEncoder, inner: Upstream, longest_s: float) -> None:
        self._encoder = encoder
        self._inner = inner
        self._longest_s = longest_s

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        try:
            ids = await self._ids(request)
        except CamshaftError as error:
            yield Failed(error.info())
            return
        # Every stream is an async generator or has its aclose; the protocol says that closing cancels.
        stream = cast(AsyncGenerator[Event, None], self._inner.stream(msgspec.structs.replace(request, prompt=TokenPrompt(ids))))
        async with aclosing(stream):
            async for event in stream:
                yield event

    async def health(self) -> Health:
        return await self._inner.health()

    async def close(self) -> None:
        self._encoder.close()
        await self._inner.close()

    async def _ids(self, request: Request) -> tuple[int, ...]:
        limit_s = request.limit_s(self._longest_s)
        try:
            async with asyncio.timeout(limit_s):
                return await self._encoder.encode(request)
        except TimeoutError:
            raise DeadlineExceeded(f"the deadline of {limit_s:g} s passed before the prompt was encoded; allow more time") from None
