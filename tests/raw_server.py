"""A server of raw bytes on a free port, for tests of what a client does with whatever comes back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def plain(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{headers}\r\n".encode() + body


class Raw(asyncio.Protocol):
    """A connection. `gone` is set once the client has closed it; `requests` are heads and bodies so far."""

    def __init__(self, server: RawServer) -> None:
        self.requests: list[bytes] = []
        self.gone = asyncio.Event()
        self._server = server
        self._rest = b""

    def say(self, data: bytes) -> None:
        self.transport.write(data)

    def hang_up(self) -> None:
        self.transport.close()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._server.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self._rest += data
        head, found, rest = self._rest.partition(b"\r\n\r\n")
        if not found:
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        if len(rest) >= length:
            self._rest = rest[length:]
            self.requests.append(head + found + rest[:length])
            task = asyncio.ensure_future(self._server.script(self))
            self._server.tasks.add(task)
            task.add_done_callback(self._server.tasks.discard)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()


Script = Callable[[Raw], Awaitable[None]]


@dataclass
class RawServer:
    script: Script
    port: int = 0
    connections: list[Raw] = field(default_factory=list)
    tasks: set[asyncio.Future[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def raw_server(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Runs `script` for every request of every connection."""
    found = RawServer(script)
    server = await asyncio.get_running_loop().create_server(lambda: Raw(found), "127.0.0.1", 0, ssl=tls)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        for raw in found.connections:
            raw.transport.abort()
        for task in list(found.tasks):
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)
