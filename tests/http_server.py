"""A real server on a real socket, in a thread of its own, for tests that go over the wire."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import uvloop

from camshaft.api.app import App
from camshaft.api.server import serve
from camshaft.bench.sse_client import Target
from camshaft.config import ServerConfig


class Running(NamedTuple):
    url: str
    target: Target
    begin_stop: Callable[[], None]  # what SIGTERM does


@contextmanager
def server(
    make_app: Callable[[], App], *, drain_s: float = 5.0, close: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> Iterator[Running]:
    """Serves `make_app()` on a free port until the block ends, and fails if it does not stop then. `close` runs last, on its loop."""
    config = ServerConfig(port=0, drain_s=drain_s)
    listening = threading.Event()
    found: list[Any] = []
    failed: list[BaseException] = []

    async def main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_listening(url: str) -> None:
            port = int(url.rpartition(":")[2])
            found.append(Running(url, Target("127.0.0.1", port), lambda: loop.call_soon_threadsafe(stop.set) and None))
            listening.set()

        try:
            await serve(make_app(), config, on_listening, stop)
        finally:
            if close is not None:
                await close()

    def work() -> None:
        try:
            uvloop.run(main())
        except BaseException as error:
            failed.append(error)
        finally:
            listening.set()

    thread = threading.Thread(target=work, name="test-server")
    thread.start()
    assert listening.wait(20)
    try:
        if failed:
            raise failed[0]
        yield found[0]
    finally:
        if thread.is_alive():
            found[0].begin_stop()
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
        assert not failed, failed
