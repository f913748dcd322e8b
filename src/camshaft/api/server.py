"""Runs the application on a socket, and stops it without losing an answer."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import FrameType

import uvicorn

from camshaft.api.app import App
from camshaft.api.edge import Edge
from camshaft.api.listener import address_of, bind
from camshaft.api.protocol import BoundedProtocol
from camshaft.config import ServerConfig

log = logging.getLogger(__name__)

KEEP_ALIVE_S = 30
TICK_S = 1.0
LAST_CONNECTIONS_S = 5  # for connections to close once every call has ended


Listening = Callable[[str], None]


async def serve(
    app: App,
    config: ServerConfig,
    on_listening: Listening | None = None,
    stop: asyncio.Event | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    signals: bool = True,
) -> None:
    """Serves until SIGTERM, SIGINT or `stop`, then drains. `on_listening` is told the address once it takes connections.

    `tls`: speak TLS with this certificate. Not `signals`: they are another server's in this process, and `stop` alone ends this one.
    On the first signal /ready turns 503 and nothing new is taken; what runs may finish for `drain_s`; the rest ends with a
    Draining error of its own. A second signal ends that time, and a third the process, at once.
    Raises ConfigError where the address cannot be bound.
    """
    listener = bind(config.host, config.port)
    server = _Server(app, config, on_listening)
    server.speak(tls)
    server.heeds_signals = signals
    stopper = asyncio.ensure_future(_stopped(server, stop)) if stop is not None else None
    try:
        await server.serve_on(listener)
    finally:
        if stopper is not None:
            stopper.cancel()
        listener.close()


async def _stopped(server: _Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.begin_exit("stop")


class _Server(uvicorn.Server):
    """uvicorn, with our drain between the signal and its own shutdown."""

    def __init__(self, app: App, config: ServerConfig, on_listening: Listening | None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=BoundedProtocol,
                ws="none",
                log_config=None,
                log_level="error",  # its warnings are about what clients send
                access_log=False,
                server_header=False,
                proxy_headers=False,  # who a client is, is not for a header to say
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=LAST_CONNECTIONS_S,
            )
        )
        self._edge: Edge = app.edge
        self._drain_s = config.drain_s
        self._on_listening = on_listening
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining: asyncio.Task[None] | None = None
        self._hurried = False
        self._over = asyncio.Event()
        self.heeds_signals = True

    def speak(self, tls: ssl.SSLContext | None) -> None:
        """TLS by this context, which its owner may give a new certificate later."""
        self.config.load()
        self.config.ssl = tls

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals() if self.heeds_signals else nullcontext():
            yield

    async def serve_on(self, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        await self.serve(sockets=[listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # What was loaded stays: a collector that walked vocabularies and templates every now and then would hold every stream up.
        gc.freeze()
        if self.started and sockets and self._on_listening is not None:
            self._on_listening(address_of(sockets[0], "https" if self.config.ssl else "http"))

    async def main_loop(self) -> None:
        # The base class looks ten times a second whether it is over, for as long as the server lives. What it does beside that is to
        # write the Date header anew, which once a second is enough for.
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._over.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not passed to the base class: it would stop listening at once, and raise the signal again at the end.
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.begin_exit, signal.Signals(sig).name)

    def begin_exit(self, why: str) -> None:
        """Drain and stop; called again, wait for no answer, but let each end with an error; and after that, stop at once."""
        if self._hurried:
            self.force_exit = self.should_exit = True
            self._over.set()
            return
        if self._draining is not None:
            self._hurried = True
            self._edge.hurry()
            return
        # A server beside another ends with it, and only the one that heard the signal says so.
        level = logging.INFO if self.heeds_signals else logging.DEBUG
        log.log(level, "%s: draining %d requests for at most %g s", why, self._edge.n_inside, self._drain_s)
        self._draining = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await self._edge.drain(self._drain_s)
        self.should_exit = True
        self._over.set()
