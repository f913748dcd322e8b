"""uvicorn's HTTP protocol with two bounds that it lacks: how large a request's head may be, and how long it may take to come."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from camshaft.api.call import WIRE

# A packet may hold the head and the beginning of the body, so that this is well above what a head needs.
MAX_HEAD_BYTES = 524_288
HEAD_WAIT_S = 30.0


class HttpWire:
    """Implements call.Wire over uvicorn: one chunk of a body, written as it is."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def write(self, data: bytes) -> bool:
        cycle = self._cycle
        if cycle.flow.write_paused or cycle.disconnected or not cycle.chunked_encoding:
            return False
        cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True


class BoundedProtocol(HttpToolsProtocol):
    """A connection whose next head is due is closed when it is late or too large. Between requests uvicorn's keep-alive timer counts."""

    _n_head = 0  # bytes received since the last head was complete
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._head_timer is not None:
            self._n_head += len(data)
            if self._n_head > MAX_HEAD_BYTES:
                self.send_400_response("The head of the request is too large.")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._head_timer is None:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        super().on_headers_complete()
        if self.cycle is not None:  # an upgrade has none
            self.cycle.scope["extensions"] = {WIRE: HttpWire(self.cycle)}  # type: ignore[dict-item]

    def _await_head(self) -> None:
        self._n_head = 0
        self._head_timer = self.loop.call_later(HEAD_WAIT_S, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
