"""A worker's end of the connection: what goes out together, slow readers, those who leave, faults."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from camshaft.cluster import wire
from camshaft.cluster.host import Host
from camshaft.cluster.link import Link
from camshaft.types import Delta, Event, Failed, Finished, Load, ReplicaInfo, Request, TokenPrompt, Usage
from replica_rig import settle

END = Finished("stop", Usage(1, 0, 1))


class StubSource:
    """Each request gets the batches that its id says: a name below."""

    info = ReplicaInfo(numerics_id="stub")

    def __init__(self) -> None:
        self.n_batches = 0
        self.n_open = 0
        self.go = asyncio.Event()

    async def batches(self, request: Request) -> AsyncGenerator[tuple[Event, ...], None]:
        self.n_open += 1
        try:
            if request.id == "raises":
                raise KeyError("a bug")
            if request.id == "flood":
                for _ in range(1000):
                    self.n_batches += 1
                    yield (Delta("x" * 100_000, (1,)),)
            if request.id == "waits":
                await self.go.wait()
            yield (Delta("a", (1,)), END)
        finally:
            self.n_open -= 1

    def load(self) -> tuple[Load, float]:
        return Load(running=self.n_open), 0.0

    def metrics(self) -> bytes:
        return b"m 1\n"

    async def close(self) -> None:
        return


class Pair(NamedTuple):
    host: Host
    source: StubSource
    link: Link[wire.FromWorker]
    heard: list[wire.FromWorker]
    lost: list[str]

    def ask(self, stream: int, id: str) -> None:
        self.link.send_frame(wire.ask(stream, Request(id=id, prompt=TokenPrompt((1,)))))

    def events(self, stream: int) -> list[Event]:
        return [e for m in self.heard if isinstance(m, wire.Events) and m.stream == stream for e in m.events]


@asynccontextmanager
async def pair() -> AsyncIterator[Pair]:
    """A host, and somebody who asks it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    for end in (ours, theirs):
        end.setblocking(False)
    host, source = Host(), StubSource()
    heard: list[wire.FromWorker] = []
    lost: list[str] = []
    link: Link[wire.FromWorker] = Link(wire.FROM_WORKER, heard.append, lost.append)
    await host.link.open(theirs)
    await link.open(ours)
    host.serve(source)
    try:
        yield Pair(host, source, link, heard, lost)
    finally:
        link.abort("over")
        host.link.abort("over")
        await until(lambda: bool(lost) and host.over.is_set() and source.n_open == 0)


async def until(condition: object) -> None:
    async with asyncio.timeout(20):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 - conditions of several objects
            await asyncio.sleep(0.001)


async def test_what_is_ready_together_comes_together_and_many_streams_leave_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as p:
        writes: list[int] = []
        assert p.host.link._transport is not None
        write = p.host.link._transport.write
        monkeypatch.setattr(p.host.link, "_transport", _Spy(p.host.link._transport, writes))
        assert write is not None
        for i in range(1, 9):
            p.ask(i, "waits")
        await until(lambda: p.source.n_open == 8)
        writes.clear()
        p.source.go.set()
        await until(lambda: all(p.events(i) for i in range(1, 9)))
        messages = [m for m in p.heard if isinstance(m, wire.Events)]
        assert [m.events for m in messages] == [(Delta("a", (1,)), END)] * 8
        assert len(writes) == 1


class _Spy:
    """A transport that counts its writes."""

    def __init__(self, transport: asyncio.Transport, writes: list[int]) -> None:
        self._transport = transport
        self._writes = writes

    def write(self, data: bytes) -> None:
        self._writes.append(len(data))
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()


async def test_who_does_not_read_stops_the_flood_and_nothing_piles_up() -> None:
    async with pair() as p:
        assert p.link._transport is not None
        p.link._transport.pause_reading()
        p.ask(1, "flood")
        await until(lambda: p.source.n_batches > 0)
        for _ in range(20):
            await settle()
        assert p.source.n_batches < 60, "6 MB wait for a reader of 1 MB"
        p.link._transport.resume_reading()
        await until(lambda: p.events(1) and p.events(1)[-1] == END)
        assert sum(len(e.text) for e in p.events(1) if isinstance(e, Delta)) == 100_000_001


async def test_who_leaves_frees_what_it_held_and_hears_nothing_more() -> None:
    async with pair() as p:
        p.ask(1, "waits")
        p.ask(2, "waits")
        await until(lambda: p.source.n_open == 2)
        p.link.send(wire.Cancel(1))
        p.link.send(wire.Cancel(1))
        p.link.send(wire.Cancel(99))
        await until(lambda: p.source.n_open == 1)
        p.source.go.set()
        await until(lambda: p.events(2))
        assert p.events(1) == []


async def test_one_that_leaves_before_its_stream_began_is_forgotten() -> None:
    async with pair() as p:
        p.ask(1, "waits")
        p.link.send(wire.Cancel(1))
        p.link.send(wire.Ping(5))
        await until(lambda: any(isinstance(m, wire.Pong) for m in p.heard))
        await settle()
        assert p.source.n_open == 0
        assert p.events(1) == []
        assert p.host._streams == {}


async def test_a_fault_ends_its_stream_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with pair() as p:
        p.ask(1, "raises")
        p.ask(2, "plain")
        p.link.send_frame(wire.frame(wire.Ask(3, b"\xff")))
        await until(lambda: p.events(1) and p.events(2) and p.events(3))
        assert [e.error.code for i in (1, 3) for e in p.events(i) if isinstance(e, Failed)] == ["engine_fault", "invalid_request_error"]
        assert p.events(2)[-1] == END
        assert "KeyError" in caplog.text


async def test_draining_waits_for_what_runs_and_refuses_what_comes() -> None:
    async with pair() as p:
        p.ask(1, "waits")
        await until(lambda: p.source.n_open == 1)
        draining = asyncio.ensure_future(p.host.drain(20.0))
        await until(lambda: any(isinstance(m, wire.Bye) for m in p.heard))
        p.ask(2, "plain")
        await until(lambda: p.events(2))
        refusal = p.events(2)[-1]
        assert isinstance(refusal, Failed)
        assert refusal.error.code == "draining"
        assert not draining.done()
        p.source.go.set()
        await draining
        await until(lambda: p.events(1) == [Delta("a", (1,)), END])


async def test_when_the_other_end_is_gone_everything_is_let_go() -> None:
    async with pair() as p:
        for i in range(1, 5):
            p.ask(i, "waits" if i % 2 else "flood")
        await until(lambda: p.source.n_open == 4)
        p.link.abort("gone")
        await until(lambda: p.source.n_open == 0)
        assert p.host.over.is_set()
