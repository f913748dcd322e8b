"""Link: one connection, and the messages on it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

from camshaft.cluster.wire import Frames, Message, WireError, frame

M = TypeVar("M")

_HIGH_WATER = 1 << 20  # bytes that may wait to be written before those who can wait do
_FLUSH_AT = 1 << 16


class Link(asyncio.Protocol, Generic[M]):
    """What is sent within one turn of the event loop leaves in one write. Event loop thread only.

    `heard` gets each message; it may raise WireError for one that does not belong here. `lost` is called once, with why: "" where the
    other end closed it.
    """

    def __init__(self, decoder: msgspec.msgpack.Decoder[M], heard: Callable[[M], None], lost: Callable[[str], None]) -> None:
        self._frames: Frames[M] = Frames(decoder)
        self._heard = heard
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes | bytearray] = []
        self._n_out = 0  # bytes of it
        self._writable = asyncio.Event()
        self._writable.set()
        self._why = ""

    async def open(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        await self._loop.create_unix_connection(lambda: self, sock=sock)

    def send(self, message: Message) -> None:
        self.send_frame(frame(message))

    def send_frame(self, data: bytearray) -> None:
        """Does nothing once the link is lost."""
        if self._transport is None or self._transport.is_closing():
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._n_out += len(data)
        if self._n_out >= _FLUSH_AT:  # or one who sends without a pause would never hear that nobody reads
            self._flush()

    async def writable(self) -> None:
        """Returns when the other end has read enough, or is gone."""
        await self._writable.wait()

    def close(self) -> None:
        """After what was sent is written. Idempotent."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self, why: str) -> None:
        """At once. Idempotent."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        out, self._out, self._n_out = self._out, [], 0
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    # ---------------------------------------------------------------------------------------------- asyncio calls these

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self._transport.set_write_buffer_limits(_HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._frames.feed(data):
                self._heard(message)
        except WireError as error:
            self.abort(f"it broke the protocol: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        self._out.clear()
        self._lost(self._why)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
