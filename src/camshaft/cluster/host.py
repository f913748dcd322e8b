"""Host: the worker's end of a link. It serves a source of answers to whoever is at the other end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Protocol

from camshaft.cluster import wire
from camshaft.cluster.link import Link
from camshaft.errors import CamshaftError, Draining, EngineFault
from camshaft.types import Event, Failed, Finished, Load, ReplicaInfo, Request

log = logging.getLogger(__name__)


class Source(Protocol):
    """What a worker serves: an Upstream that gives what is ready together, and says how it is."""

    @property
    def info(self) -> ReplicaInfo: ...

    def batches(self, request: Request) -> AsyncGenerator[tuple[Event, ...], None]:
        """As Upstream.stream, all that is ready at a time. Every failure is a Failed event."""
        ...

    def load(self) -> tuple[Load, float]:
        """How busy it is, and for how long the present step has been computed."""
        ...

    def metrics(self) -> bytes: ...

    async def close(self) -> None: ...


class Host:
    """One task for each stream. A stream whose other end reads slowly stays in the engine's mailbox, where it is merged."""

    def __init__(self) -> None:
        self.link: Link[wire.ToWorker] = Link(wire.TO_WORKER, self._heard, self._lost)
        self.over = asyncio.Event()  # the other end said Bye, or is gone
        self._source: Source | None = None
        self._refusal: CamshaftError = Draining("this replica is not ready; try another")
        self._streams: dict[int, asyncio.Task[None]] = {}
        self._newest = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def serve(self, source: Source) -> None:
        """Take requests from now on."""
        self._source = source
        self.link.send(wire.Ready(source.info))

    async def drain(self, longest_s: float) -> None:
        """Take nothing new, and wait for what runs."""
        self._refusal = Draining("this replica is shutting down; try another")
        self._source, source = None, self._source
        self.link.send(wire.Bye(self._refusal.info()))
        if source is not None:
            await self.emptied(longest_s)

    async def emptied(self, longest_s: float) -> None:
        """Returns when no stream is left, when nobody is there to read one, or when so much time has passed."""
        tasks = [asyncio.ensure_future(event.wait()) for event in (self.over, self._empty)]
        try:
            await asyncio.wait(tasks, timeout=longest_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    # ---------------------------------------------------------------------------------------------------------- messages

    def _heard(self, message: wire.ToWorker) -> None:
        match message:
            case wire.Ask():
                self._ask(message.stream, message.request)
            case wire.Cancel():
                if (task := self._streams.get(message.stream)) is not None:
                    task.cancel()
            case wire.Ping():
                load, step_s = self._source.load() if self._source is not None else (Load(), 0.0)
                self.link.send(wire.Pong(message.number, load, step_s))
            case wire.AskMetrics():
                self.link.send(wire.MetricsText(message.number, self._source.metrics() if self._source is not None else b""))
            case wire.Bye():
                self.over.set()

    def _lost(self, why: str) -> None:
        if why:
            log.error("the connection to the gateway is lost: %s", why)
        self.over.set()
        for task in self._streams.values():
            task.cancel()

    def _ask(self, stream: int, raw: bytes) -> None:
        if stream <= self._newest:
            raise wire.WireError(f"stream {stream} after stream {self._newest}")
        self._newest = stream
        if self._source is None:
            self._fail(stream, self._refusal)
            return
        try:
            request = wire.asked(raw)
        except CamshaftError as error:
            self._fail(stream, error)
            return
        task = asyncio.ensure_future(self._pump(self._source, stream, request))
        self._streams[stream] = task
        self._empty.clear()
        task.add_done_callback(lambda done: self._ended(stream, done))

    async def _pump(self, source: Source, stream: int, request: Request) -> None:
        async with aclosing(source.batches(request)) as batches:
            async for batch in batches:
                data, broken = wire.told(stream, batch)
                self.link.send_frame(data)
                if broken or isinstance(batch[-1], (Finished, Failed)):
                    return
                await self.link.writable()
        raise AssertionError("a stream ended without its terminal event")

    def _ended(self, stream: int, task: asyncio.Task[None]) -> None:
        del self._streams[stream]
        if not self._streams:
            self._empty.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a stream failed in a way that it must not", exc_info=error)
            self._fail(stream, EngineFault(f"the replica failed while answering ({type(error).__name__}); the request may be tried again"))

    def _fail(self, stream: int, error: CamshaftError) -> None:
        self.link.send(wire.Events(stream, (Failed(error.info()),)))
