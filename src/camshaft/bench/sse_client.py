"""A streaming HTTP client that measures: every event with the moment at which it came.

While an answer comes, its bytes are put aside with the time and nothing else is done; they are read once it is over. So a load generator
on the same machine takes little from the server that it measures.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from camshaft.schema.sse import SseParser

MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 64_000_000  # of an answer that is no stream


class Stamped(NamedTuple):
    """An event's data and when it came."""

    at: float  # time.perf_counter() seconds
    data: str


@dataclass
class Reply:
    """One call, as the client saw it. Times are time.perf_counter() seconds; 0 is never."""

    sent_at: float
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    events: list[Stamped] = field(default_factory=list)
    body: bytes = b""  # of an answer that is no stream
    done_at: float = 0.0


class Target(NamedTuple):
    host: str
    port: int
    key: str = ""


async def post(target: Target, path: str, body: bytes, *, deadline_s: float, into: Reply | None = None) -> Reply:
    """Sends JSON and reads the whole answer. Raises TimeoutError, OSError, or ValueError for an answer that is no HTTP or is cut off.

    `into` is filled with what has come, also where the call fails or is cancelled.
    """
    reply = into or Reply(sent_at=0.0)
    loop = asyncio.get_running_loop()
    wire = _Wire(loop)
    async with asyncio.timeout(deadline_s):
        transport, _ = await loop.create_connection(lambda: wire, target.host, target.port)
        try:
            reply.sent_at = time.perf_counter()
            transport.write(_head(target, path, len(body)) + body)
            await wire.ended
        finally:
            # At once: leaving early is how a client disconnects.
            transport.abort()
            complete = _read(wire.parts, reply)
    if not complete:
        raise ValueError("the answer was cut off")
    return reply


class _Wire(asyncio.Protocol):
    """Bytes with the moment at which they came, until the server closes the connection, as it was asked to."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.parts: list[tuple[float, bytes]] = []  # time.perf_counter() seconds
        self.ended: asyncio.Future[None] = loop.create_future()
        self._size = 0

    def data_received(self, data: bytes) -> None:
        self.parts.append((time.perf_counter(), data))
        self._size += len(data)
        if self._size > MAX_BODY_BYTES and not self.ended.done():
            self.ended.set_exception(ValueError("the answer never ends"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.ended.done():
            return
        if exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc)


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection for one call, closed at the end at once: leaving early is how a client disconnects."""
    reader, writer = await asyncio.open_connection(target.host, target.port, limit=MAX_HEAD_BYTES)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def _head(target: Target, path: str, length: int) -> bytes:
    key = f"authorization: Bearer {target.key}\r\n" if target.key else ""
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = f"POST {path} HTTP/1.1\r\nhost: {host}:{target.port}\r\nconnection: close\r\n"
    return f"{lines}{key}content-type: application/json\r\ncontent-length: {length}\r\n\r\n".encode()


def _read(parts: Sequence[tuple[float, bytes]], reply: Reply) -> bool:
    """Fills `reply` with what came. False where the answer is not complete; raises ValueError where it is no HTTP."""
    if not parts:
        return False
    ends = list(accumulate(len(data) for _, data in parts))
    whole = b"".join(data for _, data in parts)
    head, found, _ = whole.partition(b"\r\n\r\n")
    if not found:
        _parse_head(head)
        return False
    reply.status, reply.headers = _parse_head(head)
    reply.done_at = parts[-1][0]
    pieces, complete = _payload(whole, len(head) + len(found), reply.headers)
    if not reply.headers.get("content-type", "").startswith("text/event-stream"):
        reply.body = b"".join(piece for _, piece in pieces)
        return complete
    parser = SseParser()
    for end, piece in pieces:
        at = parts[bisect_left(ends, end)][0]
        reply.events += [Stamped(at, event.data) for event in parser.feed(piece)]
    return complete


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"not an HTTP answer: {first[:80]!r}")
    pairs = (line.partition(":") for line in lines if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _payload(whole: bytes, start: int, headers: Mapping[str, str]) -> tuple[list[tuple[int, bytes]], bool]:
    """The body from `start` on as (where it ends in `whole`, bytes), and whether all of it is there."""
    if headers.get("transfer-encoding", "").lower() != "chunked":
        length = int(headers.get("content-length", "0"))
        body = whole[start : start + length]
        return [(start + len(body), body)] if body else [], len(body) == length
    pieces: list[tuple[int, bytes]] = []
    while (line_end := whole.find(b"\r\n", start)) >= 0:
        size = int(whole[start:line_end].split(b";")[0], 16)
        end = line_end + 2 + size
        if size == 0:
            return pieces, True
        if end > len(whole):
            break
        pieces.append((end, whole[line_end + 2 : end]))
        start = end + 2
    return pieces, False
