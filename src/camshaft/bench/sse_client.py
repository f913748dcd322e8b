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

MAX_EVENT_BYTES = 16_000_000
MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 64_000_000  # of an answer that is no stream
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    event: str
    data: str
    id: str | None  # the last one seen, as the standard has it


class SseParser:
    """Bytes in any cut to events, as the WHATWG standard says. An event that the stream's end leaves open is no event."""

    def __init__(self) -> None:
        self._rest = b""  # of a line that has not ended
        self._began = False
        self._skip_lf = False  # the last byte was CR, so that an LF next belongs to it
        self._data: list[bytes] = []
        self._event = ""
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Events that this chunk completes. Raises ValueError for a line or an event beyond all measure."""
        if self._skip_lf and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if chunk:
            self._skip_lf = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + chunk
        if not self._began:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            self._began = True
            text = text.removeprefix(_BOM)
        *lines, self._rest = text.split(b"\n")
        if len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError("a line of the stream never ends")
        found = []
        for line in lines:
            if line:
                self._field(line)
            elif (event := self._dispatch()) is not None:
                found.append(event)
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")

    def _dispatch(self) -> SseEvent | None:
        data, name = self._data, self._event
        self._data, self._event = [], ""
        if not data:
            return None
        return SseEvent(name or "message", b"\n".join(data).decode("utf-8", "replace"), self._id)


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
