"""Link: one connection to an HTTP/1.1 server. Response: what it is being told on it right now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, NamedTuple, cast

from httptools import HttpParserError, HttpResponseParser

MAX_BARE_BYTES = 65_536  # head, chunk sizes and trailers: what comes without a byte of body
HIGH_BYTES = 262_144  # body that nobody has read; more stays in the network
REST_S = 1.0  # for the end of a body that nobody needs

Kind = Literal["connect", "cut", "silent", "late", "nonsense"]


class HttpFault(Exception):
    """No answer, or not all of it. Nothing in the message is from the server's body.

    connect: no connection. cut: it closed early. silent: nothing came for too long. late: the deadline passed. nonsense: not HTTP, or
    out of bounds. `heard`: a byte of the answer had come.
    """

    def __init__(self, kind: Kind, message: str, *, heard: bool = False) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.message = message
        self.heard = heard


class Waits(NamedTuple):
    """How long an answer may take. Seconds, but for `deadline_at`, which is loop time."""

    deadline_at: float
    first_s: float = 60.0  # to the first byte of its body
    idle_s: float = 60.0  # between bytes of it afterwards, while they are being read


class Response:
    """One answer. Its owner closes it; until the end has been read that drops the connection."""

    def __init__(self, link: Link, waits: Waits) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}  # names in lower case
        self.complete = False
        self._left = False
        self._link = link
        self._loop = link.loop
        self._waits = waits
        self._patience_s = waits.first_s
        self._parts: list[bytes] = []
        self._size = 0
        self._fault: HttpFault | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer = self._loop.call_at(min(waits.deadline_at, self._loop.time() + self._patience_s), self._look)

    async def read(self) -> bytes:
        """What came since, a byte at least; b"" at the end. Raises HttpFault, once everything before it was read."""
        parts = self._parts
        while not parts:
            if self._fault is not None:
                raise self._fault
            if self.complete:
                return b""
            await self.wait()
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._size = 0
        if self._link.paused:
            self._link.resume()
        return data

    async def whole(self, limit: int) -> bytes:
        """The body. Raises HttpFault where it has more than `limit` bytes."""
        parts: list[bytes] = []
        size = 0
        while data := await self.read():
            parts.append(data)
            size += len(data)
            if size > limit:
                raise HttpFault("nonsense", f"the answer has more than {limit} bytes", heard=True)
        return b"".join(parts)

    async def headed(self) -> None:
        """Returns once the head is there. Raises HttpFault."""
        while not self.status:
            if self._fault is not None:
                raise self._fault
            await self.wait()

    async def wait(self) -> None:
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Idempotent."""
        self._timer.cancel()
        if not self.complete and self._fault is None:
            self._fault = HttpFault("cut", "left by its reader")
            self._link.drop()

    def leave(self) -> None:
        """Its reader has what it wanted, and what may still come is the end of the body: the connection is kept if that comes soon."""
        self._left = True
        if not self.complete and self._fault is None:
            self._timer.cancel()
            self._timer = self._loop.call_later(REST_S, self.close)

    # ------------------------------------------------------------------------------------------ told by the link

    def begin(self, status: int, headers: dict[str, str]) -> None:
        self.status, self.headers = status, headers
        self._wake()

    def add(self, body: bytes) -> None:
        if self._left:
            return
        self._parts.append(body)
        self._size += len(body)
        if self._patience_s != self._waits.idle_s:
            self._patience_s = self._waits.idle_s
            self._timer.cancel()
            self._look()
        if self._size > HIGH_BYTES:
            self._link.pause()
        self._wake()

    def end(self) -> None:
        self.complete = True
        self._timer.cancel()
        self._wake()

    def fail(self, fault: HttpFault) -> None:
        if self._fault is None and not self.complete:
            self._fault = fault
            self._timer.cancel()
            self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _look(self) -> None:
        """Whether it takes too long. One timer an answer, set anew when it fires, so that a byte that comes costs none."""
        now, link = self._loop.time(), self._link
        due = (now if link.paused else link.heard_at) + self._patience_s
        if now >= self._waits.deadline_at:
            link.fail(HttpFault("late", "the deadline passed", heard=bool(self.status)))
        elif now >= due:
            what = "nothing came" if self._patience_s == self._waits.first_s else "the answer stood still"
            link.fail(HttpFault("silent", f"{what} for {self._patience_s:g} s", heard=bool(self.status)))
        else:
            self._timer = self._loop.call_at(min(due, self._waits.deadline_at), self._look)


class Link(asyncio.Protocol):
    """A connection, which its pool makes. `free`: its answer is complete and another request can go. `lost`: it is gone, told once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, free: Callable[[Link], None], lost: Callable[[Link], None]) -> None:
        self.loop = loop
        self.paused = False  # reading
        self.heard_at = loop.time()
        self._free = free
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parts: list[bytes] = []  # body of the bytes that are being parsed
        self.on_body = self._parts.append  # called by httptools, once for each chunk of each packet
        self._parser = HttpResponseParser(self)
        self._response: Response | None = None
        self._heard = False  # a byte of this answer
        self._n_bare = 0
        self._headers: dict[str, str] = {}
        self._headed = False
        self._to_the_end = False  # the body ends where the connection does

    async def ask(self, data: bytes, waits: Waits) -> Response:
        """Sends a request. Returns with the head of its answer; raises HttpFault and is gone then."""
        assert self._transport is not None
        assert self._response is None
        self._heard = self._headed = self._to_the_end = False
        self._n_bare = 0
        self.heard_at = self.loop.time()
        response = self._response = Response(self, waits)
        if self._transport.is_closing():
            self.fail(HttpFault("cut", "the server had closed the connection"))
        else:
            self._transport.write(data)
        given = False
        try:
            await response.headed()
            given = True
            return response
        finally:
            if not given:
                response.close()

    def fail(self, fault: HttpFault) -> None:
        """End the answer with a fault, and the connection."""
        response, self._response = self._response, None
        self.drop()
        if response is not None:
            response.fail(fault)

    def drop(self) -> None:
        self._response = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if not self.paused and self._transport is not None and not self._transport.is_closing():
            self.paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self.paused and self._transport is not None:
            self.paused = False
            self.heard_at = self.loop.time()
            if not self._transport.is_closing():
                self._transport.resume_reading()

    # ---------------------------------------------------------------------------------------------- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            # Nothing was asked.
            self.drop()
            return
        self._heard = True
        self.heard_at = self.loop.time()
        self._n_bare += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            if self._parts:
                self._give()
            self.fail(HttpFault("nonsense", "the answer is not HTTP/1.1", heard=True))
            return
        if self._parts:
            self._give()
        elif self._n_bare > MAX_BARE_BYTES:
            self.fail(HttpFault("nonsense", f"more than {MAX_BARE_BYTES} bytes of headers came", heard=True))

    def connection_lost(self, exc: Exception | None) -> None:
        response, self._response = self._response, None
        self._lost(self)
        if response is None:
            return
        if self._to_the_end and exc is None:
            response.end()
        else:
            response.fail(HttpFault("cut", "the server closed the connection before its answer was complete", heard=self._heard))

    def _give(self) -> None:
        """What the packet had of the body, in one."""
        parts = self._parts
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        self._n_bare = 0
        if self._response is not None:
            self._response.add(body)

    # ------------------------------------------------------------------------------------------------- httptools

    def on_message_begin(self) -> None:
        if self._response is None:
            # An answer that nobody asked for would be taken for that to the next question.
            self.drop()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._headed:
            self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, {}
        if status < 200 or self._response is None:
            return
        self._headed = True
        self._to_the_end = "content-length" not in headers and "chunked" not in headers.get("transfer-encoding", "").lower()
        self._response.begin(status, headers)

    def on_message_complete(self) -> None:
        if not self._headed:
            return  # 100 Continue and its like
        if self._parts:
            self._give()
        response, self._response = self._response, None
        if response is None:
            return
        response.end()
        if self._parser.should_keep_alive():
            self.resume()
            self._free(self)
        else:
            self.drop()
