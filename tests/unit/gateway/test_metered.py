"""Limits settle what was used: by the server's own count, where another server counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

from camshaft.clock import ManualClock
from camshaft.gateway.limit import Limiter
from camshaft.gateway.metered import Metered
from camshaft.gateway.size import Sizer
from camshaft.types import Delta, Event, Finished, Health, Request, Started, TextPrompt, Usage


class Recorder:
    """A limiter that admits everybody, and the grant that it gives."""

    def __init__(self) -> None:
        self.settled: list[tuple[int, int, int]] = []
        self.closed = 0

    def admit(self, tenant: str, cost: object, now: float) -> Recorder:
        return self

    def settle(self, n_prompt: int, n_cached: int, n_output: int, now: float) -> None:
        self.settled.append((n_prompt, n_cached, n_output))

    def close(self, now: float) -> None:
        self.closed += 1


class Foreign:
    """Cannot tell at the start what it finds cached, and counts at the end."""

    def __init__(self, *events: Event) -> None:
        self._events = events

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        for event in self._events:
            yield event

    async def health(self) -> Health:
        return Health(True, 0, 0)

    async def close(self) -> None:
        pass


async def settled(*events: Event) -> list[tuple[int, int, int]]:
    recorder: Any = Recorder()
    metered = Metered(cast(Limiter, recorder), Sizer(lambda: 0, lambda prompt: 10), Foreign(*events), ManualClock())
    assert [e async for e in metered.stream(Request(id="r", prompt=TextPrompt("x" * 40)))] == list(events)
    assert recorder.closed == 1
    return list(recorder.settled)


async def test_what_the_server_counted_is_settled() -> None:
    """A foreign server's tokens are charged as it counted them, cached ones apart (gateway failures, row 10)"""
    begun, some = Started(10, -1, 0.0), Delta("a", (), n_tokens=1)
    assert await settled(begun, some, Finished("stop", Usage(13, 4, 7))) == [(13, 4, 7)]


async def test_an_answer_that_broke_off_is_settled_by_what_is_known() -> None:
    assert await settled(Started(10, -1, 0.0), Delta("a", (), n_tokens=3)) == [(10, 0, 3)]
