"""One HTTP request inside the server, from its headers to the last byte of its answer."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from camshaft.api.asgi import Message, Receive, Scope, Send
from camshaft.errors import BadRequest, BodyTooLarge, CamshaftError, Cancelled, DeadlineExceeded

T = TypeVar("T")

BODY_WAIT_S = 60.0  # for a whole body to arrive
_SAFE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}\Z")

WIRE = "camshaft.wire"  # name of the extension in an ASGI scope
JSON = b"application/json"
STREAM_HEAD = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # keeps nginx from collecting events into pages
)


class Wire(Protocol):
    """A way round ASGI for the bytes of an open stream, where the server offers one: a call, and no message, task or task switch."""

    def write(self, data: bytes) -> bool:
        """False, and nothing done, where the client is slow or gone: send it the long way, which waits."""
        ...


class Call:
    """Reads the request, writes the answer, and knows how it went. Used from one task, but for `end`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self._send = send
        self._wire: Wire | None = scope.get("extensions", {}).get(WIRE)
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        # A client's id comes back and is logged, if it is short and plain; it never names anything inside.
        self.id = _plain(self.headers.get(b"x-request-id")) or secrets.token_hex(12)
        self.tenant = ""
        self.passed: tuple[str, ...] = ()  # models that could not answer this call
        self.began_at = time.perf_counter()
        self.status = 0  # 0: nothing sent yet
        self.streaming = False
        self.send_s = (
            0.0  # time that handing bytes to the socket took, waiting for a slow client included; what went at once is not counted
        )
        self.notes: dict[str, object] = {}  # for the log line at the end
        self._task: asyncio.Task[Any] | None = None
        self._ended_by: CamshaftError | None = None

    @property
    def session(self) -> str:
        """The conversation that this call says it belongs to."""
        return _plain(self.headers.get(b"x-session-id"))

    @property
    def version(self) -> str:
        """The model's version that it asks for."""
        return _plain(self.headers.get(b"x-camshaft-version"))

    @property
    def trace(self) -> str:
        """The trace that it is part of (W3C traceparent)."""
        return _plain(self.headers.get(b"traceparent"))

    # ---------------------------------------------------------------------------------------------------- reading

    async def body(self, limit: int) -> bytes:
        """The whole body. Raises BodyTooLarge as soon as it is known to exceed `limit` bytes; never holds more than that."""
        declared = self.headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            raise BodyTooLarge(f"the body has {int(declared)} bytes; at most {limit} are taken")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(BODY_WAIT_S):
                while True:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise Cancelled("the client left before its request was complete")
                    part = message.get("body", b"")
                    size += len(part)
                    if size > limit:
                        raise BodyTooLarge(f"the body has more than {limit} bytes, which is the limit")
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            error = BadRequest(f"the body did not arrive within {BODY_WAIT_S:g} s")
            error.status = 408
            raise error from None

    async def while_here(self, work: Coroutine[Any, Any, T], limit_s: float) -> T:
        """The result of `work`, which is cancelled when the client leaves, when `end` is called, or after `limit_s`.

        The body must have been read. Raises Cancelled, DeadlineExceeded or whatever `end` was given.
        """
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._task = task
        watcher = asyncio.ensure_future(self._watch())
        timer = asyncio.get_running_loop().call_later(
            limit_s, self.end, DeadlineExceeded(f"the answer was not complete after {limit_s:g} s")
        )
        try:
            return await task
        except asyncio.CancelledError:
            if self._ended_by is not None:
                raise self._ended_by from None
            raise
        finally:
            timer.cancel()
            watcher.cancel()
            if not task.done():
                task.cancel()
                # The work's own cleanup (closing the upstream) must be over before this call is.
                await asyncio.wait((task,))

    def end(self, error: CamshaftError) -> None:
        """Stop the work; its caller sees `error`. The first reason stands."""
        if self._task is not None and not self._task.done() and self._ended_by is None:
            self._ended_by = error
            self._task.cancel()

    async def _watch(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass
        self.end(Cancelled("the client left"))

    # ---------------------------------------------------------------------------------------------------- writing

    async def reply(self, status: int, body: bytes, content_type: bytes = JSON, headers: Mapping[bytes, bytes] = {}) -> None:
        """A whole answer at once."""
        head = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers.items()]
        await self._start(status, head)
        await self._out({"type": "http.response.body", "body": body})

    async def open_stream(self, headers: Mapping[bytes, bytes] = {}) -> None:
        """The head of a server-sent event stream."""
        self.streaming = True
        await self._start(200, [*STREAM_HEAD, *headers.items()])

    def write_now(self, data: bytes) -> bool:
        """Bytes of an open stream, if that can be without waiting. False: `write` them."""
        return self._wire is not None and self._wire.write(data)

    async def write(self, data: bytes) -> None:
        """Bytes of an open stream. Returns when the socket took them, so that a slow client slows its own call and nothing else."""
        await self._out({"type": "http.response.body", "body": data, "more_body": True})

    async def close_stream(self, data: bytes) -> None:
        """The last bytes of an open stream."""
        await self._out({"type": "http.response.body", "body": data})

    async def _start(self, status: int, head: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        await self._out({"type": "http.response.start", "status": status, "headers": [*head, (b"x-request-id", self.id.encode())]})

    async def _out(self, message: Message) -> None:
        began = time.perf_counter()
        try:
            await self._send(message)
        except OSError:
            raise Cancelled("the client left") from None
        finally:
            self.send_s += time.perf_counter() - began


def _plain(given: bytes | None) -> str:
    """A short plain header's text; "" where there is none, or one that could be anything."""
    return given.decode() if given is not None and _SAFE_ID.match(given) else ""
