"""A streaming HTTP client that measures: every event with the moment at which it came.

Plain asyncio streams and as little Python per event as will do, so that a load generator on the same machine takes little from
the server that it measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_EVENT_BYTES = 16_000_000
MAX_HEAD_BYTES = 65_536
MAX_BODY_BYTES = 64_000_000  # of an answer that is no stream
READ_BYTES = 65_536
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
    """Sends JSON and reads the whole answer. Raises TimeoutError, OSError, or ValueError for an answer that is no HTTP.

    `into` is filled as the answer comes, for a caller that looks while it runs or cancels it.
    """
    async with asyncio.timeout(deadline_s), connected(target) as (reader, writer):
        return await _exchange(reader, writer, _head(target, path, len(body)) + body, into or Reply(sent_at=0.0))


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


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes, reply: Reply) -> Reply:
    reply.sent_at = time.perf_counter()
    writer.write(request)
    await writer.drain()
    reply.status, reply.headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
    parser = SseParser() if reply.headers.get("content-type", "").startswith("text/event-stream") else None
    parts: list[bytes] = []
    size = 0
    async for part in _body(reader, reply.headers):
        if parser is not None:
            now = time.perf_counter()
            reply.events += [Stamped(now, event.data) for event in parser.feed(part)]
        else:
            parts.append(part)
            size += len(part)
            if size > MAX_BODY_BYTES:
                raise ValueError("the answer never ends")
    reply.body = b"".join(parts)
    reply.done_at = time.perf_counter()
    return reply


def _parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"not an HTTP answer: {first[:80]!r}")
    pairs = (line.partition(":") for line in lines if line)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body in the pieces in which it comes. Raises ValueError where it is cut off."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        return
    left = int(headers.get("content-length", "0"))
    while left:
        part = await reader.read(min(left, READ_BYTES))
        if not part:
            raise ValueError("the answer was cut off")
        left -= len(part)
        yield part
